"""The transcripts of kubectl with a real kube-apiserver, replayed with the newest kubectl on a hub process."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import replay
from kubectl_transcripts import Kubectl, Transcript, is_version, ranges, record
from recorded import name_of, read, recordings, write

TRANSCRIPTS = {name_of(path).removesuffix(".txt"): path for path in recordings("kubectl")}


@pytest.fixture(scope="module")
def kubeconfig() -> Iterator[Path]:
    """Of one hub for all transcripts: each has a namespace of its own."""
    with replay.fresh_hub() as hub:
        yield replay.recorded_administrator(hub)


@pytest.mark.slow
@pytest.mark.parametrize("name", TRANSCRIPTS)
def test_exactly_the_known_steps_of_kubectl_differ(kubeconfig: Path, name: str) -> None:
    kubectl, transcripts = replay.representative_kubectls()[-1], [TRANSCRIPTS[name]]
    outcome = replay.replay_kubectl(kubeconfig, transcripts, kubectl)
    known = replay.of_recordings(replay.Known.read().of_kubectl(kubectl), transcripts)
    assert outcome.differing == known, outcome.text(outcome.differing - known)


@pytest.mark.parametrize("name", TRANSCRIPTS)
def test_a_transcript_is_written_as_it_was_read(name: str) -> None:
    assert str(Transcript.read(TRANSCRIPTS[name])) == read(TRANSCRIPTS[name])


def test_kubectl_prints_what_was_recorded(kubeconfig: Path, tmp_path: Path) -> None:
    transcript = tmp_path / "configmaps.txt.gz"
    steps = [
        "# config maps",
        "$ kubectl create configmap a --from-literal=k=v",
        "$ kubectl get cm a -o name",
        "$ kubectl get cm b",
    ]
    write(transcript, "\n".join(steps))
    newest = replay.representative_kubectls()[-1]
    record([Kubectl(newest, kubeconfig)], transcript)
    assert read(transcript).splitlines() == [
        *steps[:2],
        "> configmap/a created",
        steps[2],
        "> configmap/a",
        steps[3],
        '! Error from server (NotFound): configmaps "b" not found',
        "? 1",
    ]
    assert replay.replay_kubectl(kubeconfig, [transcript], newest).differing == set()
    write(transcript, read(transcript).replace("a created", "b created"))
    assert replay.replay_kubectl(kubeconfig, [transcript], newest).differing == {"configmaps.txt:2"}


@pytest.mark.parametrize(
    ("condition", "versions"),
    [
        ("", {27, 28, 30, 33}),
        (">=1.30", {30, 33}),
        (">1.27,<1.33", {28, 30}),
        ("1.27-1.28", {27, 28}),
        ("1.27,1.33", {27, 33}),
    ],
)
def test_a_block_of_a_transcript_is_for_some_versions(condition: str, versions: set[int]) -> None:
    assert {minor for minor in (27, 28, 30, 33) if is_version(condition, minor)} == versions


def test_neighbours_among_the_recorded_versions_make_a_range() -> None:
    assert ranges([27, 30], [27, 30, 33]) == "1.27-1.30"
    assert ranges([33, 27], [27, 30, 33]) == "1.27,1.33"
