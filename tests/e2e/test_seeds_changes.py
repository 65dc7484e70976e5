"""Change the Locations, SyncTargets and EdgePlacements and see how the scheduler reacts, as its walks invite to.

The changes and their results are those recorded of the original, in its order, but for what it does wrong: it empties
the slice of a placement that it does not understand, which keeps its last good one here, and it leaves a slice that
somebody deletes or edits as it is until the placement changes, which is repaired here.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import NamedTuple

import pytest
from hub_process import Json, eventually
from seed_session import Session

Pairs = frozenset[tuple[str, str]]  #: of a Location and a SyncTarget

INVENTORY = "--server $HUB/clusters/root:compute"
EDIT = "kubectl patch edgeplacement dev --type=merge -p"


def pairs(text: str) -> Pairs:
    """`dev prod/dev`: Location dev with the SyncTarget of that name, and Location prod with dev."""
    written = (pair.partition("/") for pair in text.split())
    return frozenset((location, target or location) for location, _, target in written)


class Change(NamedTuple):
    command: str
    all2all: str | None  #: where it leads then; None: nowhere any more
    dev: str | None


EVERYTHING = "prod dev default/prod default/dev"
CHANGES = (
    Change(f"kubectl {INVENTORY} label location dev env=prod --overwrite", EVERYTHING, ""),
    Change(f"kubectl {INVENTORY} label location dev env=dev --overwrite", EVERYTHING, "dev"),
    Change(f"kubectl {INVENTORY} annotate location dev foo=bar", EVERYTHING, "dev"),
    Change(
        f"kubectl {INVENTORY} label synctarget prod env=dev --overwrite",
        "default/dev default/prod dev dev/prod",
        "dev dev/prod",
    ),
    Change(f"kubectl {INVENTORY} label synctarget prod env=prod --overwrite", EVERYTHING, "dev"),
    Change(
        f"kubectl {INVENTORY} patch location dev --type=merge"
        """ -p '{"spec":{"instanceSelector":{"matchLabels":{"env":"nowhere"}}}}'""",
        "default/dev default/prod prod",
        "",
    ),
    Change(
        f"kubectl {INVENTORY} patch location dev --type=merge"
        """ -p '{"spec":{"instanceSelector":{"matchLabels":{"env":"dev"}}}}'""",
        EVERYTHING,
        "dev",
    ),
    Change(f"kubectl {INVENTORY} delete location default", "prod dev", "dev"),
    Change(f"kubectl {INVENTORY} delete synctarget dev", "prod", ""),
    Change(f"kubectl {INVENTORY} create -f config/samples/synctarget_dev.yaml", "prod dev", "dev"),
    Change(EDIT + """ '{"spec":{"locationSelectors":[{"matchLabels":{"env":"prod"}}]}}'""", "prod dev", "prod"),
    Change(
        EDIT + """ '{"spec":{"locationSelectors":[{"matchLabels":{"env":"dev"}},{"matchLabels":{"env":"prod"}}]}}'""",
        "prod dev",
        "prod dev",
    ),
    Change(EDIT + """ '{"spec":{"locationSelectors":[{},{"matchLabels":{"env":"prod"}}]}}'""", "prod dev", "prod dev"),
    Change(EDIT + """ '{"spec":{"locationSelectors":[]}}'""", "prod dev", ""),
    Change(
        EDIT + " '"
        """{"spec":{"locationSelectors":[{"matchExpressions":[{"key":"env","operator":"In","values":["dev","prod"]}]}]}}'""",
        "prod dev",
        "prod dev",
    ),
    # the original takes it, and empties the slice
    Change(
        "! " + EDIT + """ '{"spec":{"locationSelectors":[{"matchExpressions":[{"key":"env","operator":"Foo"}]}]}}'""",
        "prod dev",
        "prod dev",
    ),
    Change(EDIT + """ '{"spec":{"locationSelectors":[{"matchLabels":{"env":"dev"}}]}}'""", "prod dev", "dev"),
)
REPAIRED = (
    Change("kubectl delete sps dev", "prod dev", "dev"),  # the original has none then
    Change("kubectl annotate edgeplacement dev x=y", "prod dev", "dev"),
    Change("""kubectl patch sps all2all --type=merge -p '{"destinations":[]}'""", "prod dev", "dev"),  # or keeps that
    Change("kubectl delete edgeplacement all2all", None, "dev"),
    Change(f"kubectl {INVENTORY} delete location prod", None, "dev"),
)
BEFORE = r"""
$ kubectl ws \~
Current workspace is "kvdk2spgmbix".
$ kubectl apply -f config/imports/
apibinding.apis.kcp.io/edge.kcp.io created
$ kubectl ws root:espw
Current workspace is "root:espw".
$ farflung scheduler -v=2
...
I0605 10:53:00.261128   29786 controller.go:201] "starting controller" controller="edge-scheduler"
$ kubectl ws \~
Current workspace is "kvdk2spgmbix".
"""
UPDATED = """\
...
I0418 00:23:58.787650    6754 reconcile_on_location.go:192] "updated SinglePlacementSlice" controller="edge-scheduler" \
triggeringKind=Location key="2rp1gztc6m5b8b7r|dev" locationWorkspace="2rp1gztc6m5b8b7r" location="dev" \
workloadWorkspace="kvdk2spgmbix" singlePlacementSlice="dev"
...
I0418 00:23:58.787650    6754 reconcile_on_synctarget.go:223] "updated SinglePlacementSlice" \
controller="edge-scheduler" triggeringKind=SyncTarget key="2rp1gztc6m5b8b7r|prod" \
syncTargetWorkspace="2rp1gztc6m5b8b7r" syncTarget="prod" workloadWorkspace="kvdk2spgmbix" singlePlacementSlice="dev"
"""


NOTHING = """\
$ cat <<EOF | kubectl create -f -
apiVersion: edge.kcp.io/v1alpha1
kind: EdgePlacement
metadata: {name: nothing}
spec:
  locationSelectors: [{matchLabels: {no: such}}]
EOF
edgeplacement.edge.kcp.io/nothing created
$ kubectl get sps nothing -o yaml
apiVersion: edge.kcp.io/v1alpha1
destinations: []
kind: SinglePlacementSlice
metadata:
  annotations:
    kcp.io/cluster: kvdk2spgmbix
  creationTimestamp: "2026-11-15T19:59:34Z"
  generation: 1
  name: nothing
  ownerReferences:
  - apiVersion: edge.kcp.io/v1alpha1
    kind: EdgePlacement
    name: nothing
    uid: 803edcc5-0c2e-4449-a63a-c40edad58bfc
  resourceVersion: "979"
  uid: 28536cfa-f16b-4678-805b-42d1d75e4e3f
$ kubectl get edgeplacement nothing -o jsonpath='{.spec} {.status.matchingLocationCount}'
{"locationSelectors":[{"matchLabels":{"false":"such"}}]} 0
$ cat <<EOF | kubectl create -f - 2>&1 | grep -o 'spec.locationSelectors: .*' || true
apiVersion: edge.kcp.io/v1alpha1
kind: EdgePlacement
metadata: {name: bad}
spec:
  locationSelectors: 7
EOF
spec.locationSelectors: Invalid value: "integer": spec.locationSelectors in body must be of type array: "integer"
$ kubectl get edgeplacements,sps -o name
edgeplacement.edge.kcp.io/dev
edgeplacement.edge.kcp.io/nothing
singleplacementslice.edge.kcp.io/dev
singleplacementslice.edge.kcp.io/nothing
"""


class Watcher:
    """Types changes, and looks at the slices until they are right."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.slices: dict[str, Json] = {}

    def look(self, command: str) -> dict[str, Json]:
        items = json.loads(self._session.run(f"{command} -o json"))["items"]
        return {item["metadata"]["name"]: item for item in items}

    def type(self, change: Change) -> None:
        self._session.run(change.command)
        wanted = {"all2all": change.all2all, "dev": change.dev}
        expected = {name: pairs(leads) for name, leads in wanted.items() if leads is not None}
        uids = {name: one["metadata"]["uid"] for name, one in self.look(f"kubectl {INVENTORY} get synctargets").items()}

        def right() -> bool:
            self.slices = self.look("kubectl get sps")
            return expected == {name: resolved(one, uids) for name, one in self.slices.items()}

        eventually(right, f"{expected} after {change.command}")


def resolved(obj: Json, uids: dict[str, str]) -> Pairs:
    """Where a slice leads, as far as its SyncTargets are those that are there now."""
    return frozenset(
        (one["locationName"], one["syncTargetName"])
        if uids.get(one["syncTargetName"]) == one["syncTargetUID"]
        else ("somewhere", "else")
        for one in obj["destinations"]
    )


@pytest.fixture
def session(start: Callable[..., Session]) -> Session:
    session = start()
    session.type(BEFORE)
    for name in ("location_prod", "location_dev", "synctarget_prod", "synctarget_dev"):
        session.run(f"kubectl {INVENTORY} create -f config/samples/{name}.yaml")
    for name in ("all2all", "dev"):
        session.run(f"kubectl create -f config/samples/edgeplacement_{name}.yaml")
    return session


@pytest.mark.long
def test_the_slices_follow_every_change(session: Session) -> None:
    """They are written only when they change, each once."""
    watcher = Watcher(session)
    watcher.type(Change("true", EVERYTHING, "dev"))
    generations = {name: one["metadata"]["generation"] for name, one in watcher.slices.items()}
    assert generations == {"all2all": 1, "dev": 1}
    before = {"all2all": EVERYTHING, "dev": "dev"}
    for change in CHANGES:
        watcher.type(change)
        after = {"all2all": change.all2all or "", "dev": change.dev or ""}
        for name, leads in after.items():
            generations[name] += pairs(leads) != pairs(before[name])
        before = after
        assert generations == {name: one["metadata"]["generation"] for name, one in watcher.slices.items()}
    session.terminals[0].wait_for(UPDATED)
    for change in REPAIRED:
        watcher.type(change)
    session.type(NOTHING)
    session.interrupt()
    assert '"EdgePlacement not found"' in session.terminals[0].log()
