"""The recordings of a real kube-apiserver, where this clone has them beside it."""

from pathlib import Path

import pytest
import replay


def test_every_known_difference_has_a_reason() -> None:
    assert replay.Known.read().steps


if replay.GOLDEN.is_dir():

    @pytest.mark.slow
    @pytest.mark.timeout(600)
    def test_exactly_the_known_http_exchanges_differ() -> None:
        known = replay.Known.read()
        recordings = known.replayed("kubernetes", "*.jsonl")
        with replay.fresh_hub() as hub:
            outcome = replay.replay_http(hub, recordings)
        assert outcome.differing == known.expected(recordings)

    @pytest.mark.slow
    @pytest.mark.timeout(900)
    @pytest.mark.parametrize("kubectl", replay.representative_kubectls(), ids=lambda path: path.name)
    def test_exactly_the_known_kubectl_steps_differ(kubectl: Path) -> None:
        known = replay.Known.read()
        transcripts = known.replayed("kubectl", "*.txt")
        with replay.fresh_hub() as hub:
            outcome = replay.replay_kubectl(hub, transcripts, kubectl)
        assert outcome.differing == known.expected(transcripts)
