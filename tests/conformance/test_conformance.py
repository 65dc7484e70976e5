"""The recordings of a real kube-apiserver, where this clone has them beside it."""

from pathlib import Path

import pytest
import replay


def test_every_known_difference_has_a_reason() -> None:
    assert replay.Known.read().since


if replay.GOLDEN.is_dir():

    @pytest.mark.slow
    @pytest.mark.timeout(600)
    def test_exactly_the_known_http_exchanges_differ() -> None:
        with replay.fresh_hub() as hub:
            outcome = replay.replay_http(hub, replay.recordings("kubernetes", "*.jsonl"))
        assert outcome.differing == replay.Known.read().of_http()

    @pytest.mark.slow
    @pytest.mark.timeout(900)
    @pytest.mark.parametrize("kubectl", replay.representative_kubectls(), ids=lambda path: path.name)
    def test_exactly_the_known_kubectl_steps_differ(kubectl: Path) -> None:
        with replay.fresh_hub() as hub:
            outcome = replay.replay_kubectl(hub, replay.recordings("kubectl", "*.txt"), kubectl)
        assert outcome.differing == replay.Known.read().of_kubectl(kubectl)
