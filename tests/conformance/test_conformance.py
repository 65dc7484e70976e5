"""The recordings of a real kube-apiserver, where this clone has them beside it."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


replay = load(Path(__file__).with_name("replay.py"))


def test_every_known_difference_has_a_reason() -> None:
    assert replay.Known.read().steps


if replay.GOLDEN.is_dir():

    @pytest.mark.slow
    @pytest.mark.timeout(600)
    def test_exactly_the_known_http_exchanges_differ() -> None:
        known = replay.Known.read()
        recordings = known.replayed("kubernetes", "*.jsonl")
        with replay.fresh_hub() as directory:
            outcome = replay.replay_http(directory, recordings)
        assert outcome.differing == known.expected(recordings)

    @pytest.mark.slow
    @pytest.mark.timeout(900)
    def test_exactly_the_known_kubectl_steps_differ() -> None:
        known = replay.Known.read()
        transcripts = known.replayed("kubectl", "*.txt")
        with replay.fresh_hub() as directory:
            outcome = replay.replay_kubectl(directory, transcripts, replay.newest_kubectl())
        assert outcome.differing == known.expected(transcripts)
