"""The recordings of a real kube-apiserver."""

from contextlib import closing
from pathlib import Path

import prefixed
import pytest
import replay
from recorded import recordings
from servers import server_of

PARTS = 4  #: of all transcripts, because one worker alone would be busy with them at the end


def test_every_known_difference_has_a_reason() -> None:
    assert replay.Known.read().since


def test_nothing_but_the_cluster_of_the_workspace_is_left_out_of_a_comparison() -> None:
    told = {"kcp.io/cluster": "abc"}
    quoted = r"{\"name\":\"a\",\"annotations\":{\"kcp.io/cluster\":\"abc\"},\"labels\":{}}"
    answer = {
        "items": [
            {"metadata": {"name": "a", "annotations": told}},
            {"metadata": {"annotations": {**told, "b": "c"}}},
            {"metadata": {"annotations": {"kcp.io/cluster": "another"}}},
            {"metadata": {"annotations": {}}},
        ],
        "message": quoted,
    }
    assert prefixed.without_cluster(answer, "abc") == {
        "items": [
            {"metadata": {"name": "a"}},
            {"metadata": {"annotations": {"b": "c"}}},
            {"metadata": {"annotations": {"kcp.io/cluster": "another"}}},
            {"metadata": {"annotations": {}}},
        ],
        "message": r"{\"name\":\"a\",\"labels\":{}}",
    }


@pytest.mark.parametrize(
    ("path", "elsewhere"),
    [
        ("/api/v1/namespaces/x-${run}/configmaps/a", False),
        ("/apis/things-${run}.example.com/v1/namespaces/x/things", False),
        ("/apis/rbac.authorization.k8s.io/v1/clusterroles", False),
        ("/api/v1", False),
        ("/apis/nosuch.io/v1", False),
        ("/api/v1/namespaces/x/pods", True),
        ("/apis/apps/v1/namespaces/x/deployments/a/status", True),
        ("/apis/apps", True),
        ("/apis/batch/v1", True),
    ],
)
def test_what_a_workspace_does_not_serve_is_known_by_its_path(path: str, elsewhere: bool) -> None:
    assert prefixed.is_elsewhere(path) == elsewhere


def newest() -> Path:
    """The other versions are for `make long`."""
    return replay.representative_kubectls()[-1]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_exactly_the_known_http_exchanges_differ() -> None:
    with replay.fresh_hub() as hub, closing(server_of(hub.kubeconfig)) as server:
        outcome = replay.replay_http(server, recordings("kubernetes"))
    known = replay.Known.read().of_http()
    assert outcome.differing == known, outcome.text(outcome.differing - known)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_exactly_the_known_http_exchanges_differ_in_a_workspace() -> None:
    outcome = prefixed.replay_fresh(prefixed.RECORDINGS)
    known = prefixed.known_differences(prefixed.RECORDINGS, outcome.left_out)
    assert outcome.differing == known, outcome.text(outcome.differing - known)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("part", range(PARTS))
def test_exactly_the_known_kubectl_steps_differ(part: int) -> None:
    kubectl, transcripts = newest(), recordings("kubectl")[part::PARTS]
    with replay.fresh_hub() as hub:
        outcome = replay.replay_kubectl(replay.recorded_administrator(hub), transcripts, kubectl)
    known = replay.of_recordings(replay.Known.read().of_kubectl(kubectl), transcripts)
    assert outcome.differing == known, outcome.text(outcome.differing - known)
