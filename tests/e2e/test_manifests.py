"""The manifests of the edge API, created by kubectl as a user would."""

from __future__ import annotations

from pathlib import Path

from kubectl_runner import Kubectl

CONFIG = Path(__file__).resolve().parents[2] / "config"
NAMES = (
    "customizers",
    "edgeplacements",
    "edgesyncconfigs",
    "singleplacementslices",
    "statuscollectors",
    "statussummaries",
    "syncerconfigs",
)


def test_definitions_and_placements_are_created_explained_and_deleted(kubectl: Kubectl) -> None:
    made = kubectl(f"create -f {CONFIG / 'crds'}")
    assert made.splitlines() == [
        f"customresourcedefinition.apiextensions.k8s.io/{name}.edge.kcp.io created" for name in NAMES
    ]
    try:
        samples = CONFIG / "samples"
        assert (
            kubectl(f"create -f {samples / 'edgeplacement_all2all.yaml'}")
            == "edgeplacement.edge.kcp.io/all2all created\n"
        )
        assert kubectl(f"apply -f {samples / 'edgeplacement_dev.yaml'}") == "edgeplacement.edge.kcp.io/dev created\n"
        assert kubectl.table("get epl") == [["NAME", "READY", "AGE"], ["all2all", "AGE"], ["dev", "AGE"]]
        assert kubectl.value("epl all2all", ".spec.locationSelectors") == "[{}]"
        assert "Their names" in kubectl("explain edgeplacement.spec.upsync.names")
    finally:
        kubectl(f"delete -f {CONFIG / 'crds'}")
