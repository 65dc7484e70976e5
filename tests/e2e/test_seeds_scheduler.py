"""The walks that users of the edge scheduler know, through workspaces, exports, bindings and the inventory to the
SinglePlacementSlices, as printed.

`kcp start` is `farflung start`, and `go run cmd/scheduler/main.go` is `farflung scheduler`, which has to be told a name
that is not its own.  Left out are `git clone` and the sleeps.  `test_seed_documents.py` types the documents; here the
providers and the hubs are others.  What these walks only include from other pages is typed as the oldest of them prints
it.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from executable import ROOT
from seed_session import Session

DEFINITIONS = """\
customresourcedefinition.apiextensions.k8s.io/customizers.edge.kcp.io created
customresourcedefinition.apiextensions.k8s.io/edgeplacements.edge.kcp.io created
customresourcedefinition.apiextensions.k8s.io/edgesyncconfigs.edge.kcp.io created
customresourcedefinition.apiextensions.k8s.io/singleplacementslices.edge.kcp.io created
customresourcedefinition.apiextensions.k8s.io/statuscollectors.edge.kcp.io created
customresourcedefinition.apiextensions.k8s.io/statussummaries.edge.kcp.io created
customresourcedefinition.apiextensions.k8s.io/syncerconfigs.edge.kcp.io created
"""
EXPORTS = """\
apiexport.apis.kcp.io/edge.kcp.io created
apiresourceschema.apis.kcp.io/v1alpha1-b43b2f81.customizers.edge.kcp.io created
apiresourceschema.apis.kcp.io/v1alpha1-2bd60692.edgeplacements.edge.kcp.io created
apiresourceschema.apis.kcp.io/v1alpha1-e7e5e8ef.edgesyncconfigs.edge.kcp.io created
apiresourceschema.apis.kcp.io/v1alpha1-c501875a.singleplacementslices.edge.kcp.io created
apiresourceschema.apis.kcp.io/v1alpha1-34da9fe5.statuscollectors.edge.kcp.io created
apiresourceschema.apis.kcp.io/v1alpha1-781c04fe.statussummaries.edge.kcp.io created
apiresourceschema.apis.kcp.io/v1alpha1-d3c9ef16.syncerconfigs.edge.kcp.io created
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
SCHEDULER = """\
$ farflung scheduler -v=2 --controller-name kubestellar-scheduler
I0605 10:53:00.156100   29786 scheduler.go:212] "Found APIExport view" exportName="edge.kcp.io" serverURL="https://192.168.1.13:6443/services/apiexport/jxch2kyb3c1h6bac/edge.kcp.io"
I0605 10:53:00.157874   29786 scheduler.go:212] "Found APIExport view" exportName="scheduling.kcp.io" serverURL="https://192.168.1.13:6443/services/apiexport/root/scheduling.kcp.io"
I0605 10:53:00.159242   29786 scheduler.go:212] "Found APIExport view" exportName="workload.kcp.io" serverURL="https://192.168.1.13:6443/services/apiexport/root/workload.kcp.io"
I0605 10:53:00.261128   29786 controller.go:201] "starting controller" controller="kubestellar-scheduler"
"""
ALL_TO_ALL = r"""
$ kubectl ws \~
Current workspace is "kvdk2spgmbix".
$ kubectl create -f config/samples/edgeplacement_all2all.yaml
edgeplacement.edge.kcp.io/all2all created
$ kubectl get sps all2all -oyaml
apiVersion: edge.kcp.io/v1alpha1
destinations:
- cluster: 1yotsgod0d2p3xa5
  locationName: prod
  syncTargetName: prod
  syncTargetUID: 13841ffd-33f2-4cf4-9114-6156f73aa5c8
- cluster: 1yotsgod0d2p3xa5
  locationName: dev
  syncTargetName: dev
  syncTargetUID: ea5492ec-44af-4173-a4ca-9c5cd59afcb1
- cluster: 1yotsgod0d2p3xa5
  locationName: default
  syncTargetName: dev
  syncTargetUID: ea5492ec-44af-4173-a4ca-9c5cd59afcb1
- cluster: 1yotsgod0d2p3xa5
  locationName: default
  syncTargetName: prod
  syncTargetUID: 13841ffd-33f2-4cf4-9114-6156f73aa5c8
kind: SinglePlacementSlice
metadata:
  annotations:
    kcp.io/cluster: kvdk2spgmbix
  creationTimestamp: "2023-06-05T14:55:20Z"
  generation: 1
  name: all2all
  ownerReferences:
  - apiVersion: edge.kcp.io/v1alpha1
    kind: EdgePlacement
    name: all2all
    uid: 31915018-6a25-4f01-943e-b8a0a0ed35ba
  resourceVersion: "875"
  uid: a2b8224d-5feb-40a1-adb2-67c07965f13b
"""
DEV = """\
$ kubectl create -f config/samples/edgeplacement_dev.yaml
edgeplacement.edge.kcp.io/dev created
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
LISTED = """\
$ kubectl get sps
NAME      AGE
all2all   6s
dev       3s
$ kubectl get edgeplacements -o name
edgeplacement.edge.kcp.io/all2all
edgeplacement.edge.kcp.io/dev
$ kubectl get edgeplacement all2all -o yaml
apiVersion: edge.kcp.io/v1alpha1
kind: EdgePlacement
metadata:
  annotations:
    edge.kcp.io/author: '{"user":"kcp-admin","groups":["system:kcp:admin","system:authenticated"]}'
    kcp.io/cluster: kvdk2spgmbix
  creationTimestamp: "2026-11-15T19:58:17Z"
  generation: 1
  name: all2all
  resourceVersion: "891"
  uid: 12240fab-88bd-4614-b723-d49eabf02d5a
spec:
  locationSelectors:
  - {}
  namespaceSelector: {}
  nonNamespacedObjects:
  - apiGroup: apis.kcp.io
    resourceNames:
    - kubernetes
    resources:
    - apibindings
status:
  conditions:
  - lastTransitionTime: "2026-11-15T19:58:17Z"
    reason: Resolved
    status: "True"
    type: Ready
  matchingLocationCount: 3
  specGeneration: 1
"""


@pytest.mark.long
def test_a_new_hub_has_the_provider_and_needs_the_rest(start: Callable[..., Session]) -> None:
    """The status of a placement is ours."""
    start().type(AT_HOME + SCHEDULER + INVENTORY + ALL_TO_ALL + DEV + LISTED)


@pytest.mark.long
def test_on_a_bare_hub_the_provider_is_made_by_hand(start: Callable[..., Session]) -> None:
    start("--bare").type(provider("espw") + AT_HOME + SCHEDULER + INVENTORY + ALL_TO_ALL + DEV)


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
EDGE_SCHEDULER = """\
$ farflung scheduler --kcp-kubeconfig=$KUBECONFIG -v 2
I0327 17:14:42.222112   51241 scheduler.go:243] "Found APIExport view" exportName="edge.kcp.io" serverURL="https://192.168.1.54:6443/services/apiexport/291lkbsqq181xfng/edge.kcp.io"
I0327 17:14:42.225075   51241 scheduler.go:243] "Found APIExport view" exportName="scheduling.kcp.io" serverURL="https://192.168.1.54:6443/services/apiexport/root/scheduling.kcp.io"
I0327 17:14:42.226954   51241 scheduler.go:243] "Found APIExport view" exportName="workload.kcp.io" serverURL="https://192.168.1.54:6443/services/apiexport/root/workload.kcp.io"
I0327 17:14:42.528573   51241 controller.go:201] "starting controller" controller="edge-scheduler"
"""
TEST_1 = """
$ kubectl ws ~
Current workspace is "kvdk2spgmbix".
$ kubectl create -f config/samples/edgeplacement_test-1.yaml
edgeplacement.edge.kcp.io/test-1 created
"""
TEST_1_RESOLVED = """\
$ kubectl get sps test-1 -oyaml
apiVersion: edge.kcp.io/v1alpha1
destinations:
- cluster: f3il38atqno12hfd
  locationName: prod
  syncTargetName: prod
  syncTargetUID: 8c0a7003-ad18-4bf0-90a0-b1d74cda2437
- cluster: f3il38atqno12hfd
  locationName: dev
  syncTargetName: dev
  syncTargetUID: dc490a42-e8f1-4930-a142-6c0ba8fd39d5
- cluster: f3il38atqno12hfd
  locationName: default
  syncTargetName: prod
  syncTargetUID: 8c0a7003-ad18-4bf0-90a0-b1d74cda2437
- cluster: f3il38atqno12hfd
  locationName: default
  syncTargetName: dev
  syncTargetUID: dc490a42-e8f1-4930-a142-6c0ba8fd39d5
kind: SinglePlacementSlice
metadata:
  annotations:
    kcp.io/cluster: kvdk2spgmbix
  creationTimestamp: "2023-03-27T21:37:29Z"
  generation: 1
  name: test-1
  ownerReferences:
  - apiVersion: edge.kcp.io/v1alpha1
    kind: EdgePlacement
    name: test-1
    uid: 0c68724e-6d11-4cff-bd0a-8fa32c86caa9
  resourceVersion: "877"
  uid: 45ec86d7-bdf8-4c2d-bc02-087073a1ac17
"""
PLACED = """\
$ kubectl get edgeplacements -o name
edgeplacement.edge.kcp.io/dev
edgeplacement.edge.kcp.io/test-1
"""


def manifests_for(provider: str, clone: Path) -> None:
    """`make manifests PROVIDER=…` in a clone whose files may be written."""
    (clone / "config").unlink()
    shutil.copytree(ROOT / "config", clone / "config")
    (clone / "tools").mkdir()
    tool = shutil.copy(ROOT / "tools" / "manifests.py", clone / "tools")
    subprocess.run([sys.executable, tool, "--provider", provider], check=True, stdout=subprocess.DEVNULL)


@pytest.mark.long
def test_the_provider_may_be_any_workspace(start: Callable[..., Session]) -> None:
    session = start("--bare", root_directory="kcp/.kcp")
    manifests_for("root:edge", session.path)
    before = provider("edge") + AT_HOME_WITH_ANOTHER_PROVIDER + EDGE_SCHEDULER + INVENTORY
    session.type(FROM_ANOTHER_TERMINAL + before + TEST_1 + TEST_1_RESOLVED + DEV + PLACED)


@pytest.mark.long
def test_two_providers_do_not_get_in_each_others_way(start: Callable[..., Session]) -> None:
    session = start()
    manifests_for("root:edge", session.path)
    session.type(provider("edge") + AT_HOME_WITH_ANOTHER_PROVIDER + EDGE_SCHEDULER + TEST_1)
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
OBSERVED = """\
$ farflung scheduler
I0120 16:32:14.882891   48037 main.go:127] "Found APIExport view" exportName="edge.kcp.io" serverURL="https://192.168.58.123:6443/services/apiexport/root/edge.kcp.io"
...
I0120 16:32:14.889551   48037 main.go:84] "Observed add" obj=…
^C
"""


@pytest.mark.long
def test_root_may_be_the_provider_that_the_imports_name(start: Callable[..., Session]) -> None:
    session = start("--bare")
    manifests_for("root", session.path)
    session.type(ROOT_PROVIDES + OBSERVED)
