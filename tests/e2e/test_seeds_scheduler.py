"""The walks that users of the edge scheduler know, through workspaces, exports, bindings and the inventory, as printed.

`kcp start` is `farflung start`.  Left out are `git clone`, `go run` and what only controllers make
(SinglePlacementSlices), and the sleeps.  What these walks only include from other pages is typed as the oldest of them
prints it.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from executable import ROOT
from seed_session import Session

DEFINITIONS = """\
customresourcedefinition.apiextensions.k8s.io/customizers.edge.kcp.io created
customresourcedefinition.apiextensions.k8s.io/edgeplacements.edge.kcp.io created
customresourcedefinition.apiextensions.k8s.io/singleplacementslices.edge.kcp.io created
customresourcedefinition.apiextensions.k8s.io/statuscollectors.edge.kcp.io created
customresourcedefinition.apiextensions.k8s.io/statussummaries.edge.kcp.io created
customresourcedefinition.apiextensions.k8s.io/syncerconfigs.edge.kcp.io created
"""
EXPORTS = """\
apiexport.apis.kcp.io/edge.kcp.io created
apiresourceschema.apis.kcp.io/v1alpha1-b43b2f81.customizers.edge.kcp.io created
apiresourceschema.apis.kcp.io/v1alpha1-ff40c2e2.edgeplacements.edge.kcp.io created
apiresourceschema.apis.kcp.io/v1alpha1-c501875a.singleplacementslices.edge.kcp.io created
apiresourceschema.apis.kcp.io/v1alpha1-34da9fe5.statuscollectors.edge.kcp.io created
apiresourceschema.apis.kcp.io/v1alpha1-f777235c.statussummaries.edge.kcp.io created
apiresourceschema.apis.kcp.io/v1alpha1-51e1ff51.syncerconfigs.edge.kcp.io created
"""
INVENTORY = """\
$ kubectl ws root:compute
Current workspace is "root:compute".
$ kubectl create -f config/samples/location_prod.yaml
location.scheduling.kcp.io/prod created
$ kubectl create -f config/samples/location_dev.yaml
location.scheduling.kcp.io/dev created
$ kubectl create -f config/samples/synctarget_prod.yaml
synctarget.workload.kcp.io/prod created
$ kubectl create -f config/samples/synctarget_dev.yaml
synctarget.workload.kcp.io/dev created
$ kubectl get locations,synctargets
NAME                                 RESOURCE      AVAILABLE   INSTANCES   LABELS   AGE
location.scheduling.kcp.io/default   synctargets   0           2                    2m12s
location.scheduling.kcp.io/dev       synctargets   0           1                    2m39s
location.scheduling.kcp.io/prod      synctargets   0           1                    3m13s

NAME                              AGE
synctarget.workload.kcp.io/dev    110s
synctarget.workload.kcp.io/prod   2m12s
"""


def provider(name: str) -> str:
    return f"""\
$ kubectl ws root
Current workspace is "root".
$ kubectl ws create {name} --enter
Workspace "{name}" (type root:organization) created. Waiting for it to be ready...
Workspace "{name}" (type root:organization) is ready to use.
Current workspace is "root:{name}" (type root:organization).
$ kubectl apply -f config/crds/ -f config/exports/
{DEFINITIONS}{EXPORTS}"""


# --- Locations and SyncTargets in root:compute, EdgePlacements at home, the provider in root:espw ------------------

AT_HOME = r"""
$ kubectl ws \~
Current workspace is "kvdk2spgmbix".
$ kubectl apply -f config/imports/
apibinding.apis.kcp.io/edge.kcp.io created
$ kubectl ws root:espw
Current workspace is "root:espw".
"""
ALL_TO_ALL = r"""
$ kubectl ws \~
Current workspace is "kvdk2spgmbix".
$ kubectl create -f config/samples/edgeplacement_all2all.yaml
edgeplacement.edge.kcp.io/all2all created
$ kubectl create -f config/samples/edgeplacement_dev.yaml
edgeplacement.edge.kcp.io/dev created
$ kubectl get edgeplacements
NAME      AGE
all2all   1s
dev       1s
$ kubectl get sps
No resources found
"""


#: as the scheduler will make it
SLICE = """
$ kubectl create -f - <<EOF
apiVersion: edge.kcp.io/v1alpha1
kind: SinglePlacementSlice
metadata:
  name: dev
  ownerReferences:
  - apiVersion: edge.kcp.io/v1alpha1
    kind: EdgePlacement
    name: dev
    uid: $(kubectl get edgeplacement dev -o jsonpath={.metadata.uid})
destinations:
- cluster: 1yotsgod0d2p3xa5
  locationName: dev
  syncTargetName: dev
  syncTargetUID: ea5492ec-44af-4173-a4ca-9c5cd59afcb1
EOF
singleplacementslice.edge.kcp.io/dev created
$ kubectl get sps dev -oyaml
apiVersion: edge.kcp.io/v1alpha1
destinations:
- cluster: 1yotsgod0d2p3xa5
  locationName: dev
  syncTargetName: dev
  syncTargetUID: ea5492ec-44af-4173-a4ca-9c5cd59afcb1
kind: SinglePlacementSlice
metadata:
  annotations:
    kcp.io/cluster: kvdk2spgmbix
  creationTimestamp: "2023-06-05T14:57:00Z"
  generation: 1
  name: dev
  ownerReferences:
  - apiVersion: edge.kcp.io/v1alpha1
    kind: EdgePlacement
    name: dev
    uid: 1ac4b7f5-5521-4b5a-a0fa-cc2ec87b458b
  resourceVersion: "877"
  uid: c9c0c2fc-d721-4c73-9788-e10711bad23a
"""


def test_a_new_hub_has_the_provider_and_needs_the_rest(start: Callable[..., Session]) -> None:
    start().type(AT_HOME + INVENTORY + ALL_TO_ALL + SLICE)


def test_on_a_bare_hub_the_provider_is_made_by_hand(start: Callable[..., Session]) -> None:
    start("--bare").type(provider("espw") + AT_HOME + INVENTORY + ALL_TO_ALL)


# --- the same, with another provider, and as it was said first ------------------------------------------------------

FROM_ANOTHER_TERMINAL = """\
$ export KUBECONFIG=~/kcp/.kcp/admin.kubeconfig
"""
AT_HOME_WITH_ANOTHER_PROVIDER = """
$ kubectl ws ~
Current workspace is "kvdk2spgmbix".
$ kubectl apply -f config/imports/
apibinding.apis.kcp.io/edge.kcp.io created
$ kubectl ws root:edge
Current workspace is "root:edge".
"""
TEST_1 = """
$ kubectl ws ~
Current workspace is "kvdk2spgmbix".
$ kubectl create -f config/samples/edgeplacement_test-1.yaml
edgeplacement.edge.kcp.io/test-1 created
$ kubectl create -f config/samples/edgeplacement_dev.yaml
edgeplacement.edge.kcp.io/dev created
$ kubectl get edgeplacements
NAME     AGE
dev      1s
test-1   1s
"""


def manifests_for(provider: str, clone: Path) -> None:
    """`make manifests PROVIDER=…` in a clone whose files may be written."""
    (clone / "config").unlink()
    shutil.copytree(ROOT / "config", clone / "config")
    (clone / "tools").mkdir()
    tool = shutil.copy(ROOT / "tools" / "manifests.py", clone / "tools")
    subprocess.run([sys.executable, tool, "--provider", provider], check=True, stdout=subprocess.DEVNULL)


def test_the_provider_may_be_any_workspace(start: Callable[..., Session], tmp_path: Path) -> None:
    session = start("--bare", root_directory="kcp/.kcp")
    manifests_for("root:edge", tmp_path)
    walk = provider("edge") + AT_HOME_WITH_ANOTHER_PROVIDER + INVENTORY + TEST_1
    session.type(FROM_ANOTHER_TERMINAL + walk)


def test_two_providers_do_not_get_in_each_others_way(start: Callable[..., Session], tmp_path: Path) -> None:
    session = start()
    manifests_for("root:edge", tmp_path)
    session.type(provider("edge") + AT_HOME_WITH_ANOTHER_PROVIDER + TEST_1)
    elsewhere = """\
$ kubectl ws root
Current workspace is "root".
$ kubectl ws create elsewhere --enter
Workspace "elsewhere" (type root:organization) created. Waiting for it to be ready...
Workspace "elsewhere" (type root:organization) is ready to use.
Current workspace is "root:elsewhere" (type root:organization).
$ kubectl kcp bind apiexport root:espw:edge.kcp.io
apibinding edge.kcp.io created. Waiting to successfully bind ...
edge.kcp.io created and bound.
$ kubectl get edgeplacements
No resources found
"""
    session.type(elsewhere)


# --- the barest start: the provider is root -------------------------------------------------------------------------

ROOT_PROVIDES = rf"""
$ kubectl ws root
Current workspace is "root".
$ kubectl create -f config/crds
{DEFINITIONS}$ kubectl create -f config/exports
{EXPORTS}$ kubectl ws \~
Current workspace is "kvdk2spgmbix".
$ kubectl create -f config/imports
apibinding.apis.kcp.io/edge.kcp.io created
$ kubectl create -f config/samples/test-placement-1.yaml
edgeplacement.edge.kcp.io/test-placement-1 created
$ kubectl ws root
Current workspace is "root".
"""


def test_root_may_be_the_provider(start: Callable[..., Session], tmp_path: Path) -> None:
    session = start("--bare")
    manifests_for("root", tmp_path)
    session.type(ROOT_PROVIDES)
