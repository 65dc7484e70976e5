"""The scenario of two edge clusters and two workloads, typed as printed: its first stage, the inventory and the
mailboxes, its second, the workloads and where they go, and its third, what gets into the mailboxes; with more of what
there is to see than the document itself shows (`test_seed_documents.py` types that).

Left out is `kind`; `go run ./cmd/…` is `farflung …`, or nothing at all, as a new hub has the provider and runs the
controllers.  Its sentence that the destination of the special workload is florin is a slip: it is guilder.  A slice is
written once, not eleven times, and lines of the log say whether it was created or updated.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from seed_mailboxes import FLORIN, GUILDER, find_mailboxes
from seed_session import Session
from seed_transcripts import (
    COMMON,
    IN_PROVIDER,
    INVENTORY,
    MAILBOX_CONTROLLER,
    MAILBOXES,
    PROVIDER,
    SCHEDULER,
    SPECIAL,
    mailbox_of,
)

AFTERWARDS = """\
$ kubectl ws root:my-org:wmw-c
Current workspace is "root:my-org:wmw-c".
$ kubectl get ns
NAME          STATUS   AGE
commonstuff   Active   6m34s
default       Active   32m
$ kubectl get deployments -A
NAMESPACE     NAME      READY   UP-TO-DATE   AVAILABLE   AGE
commonstuff   commond   0/0     0            0           6m44s
$ kubectl get edgeplacements -o name
edgeplacement.edge.kcp.io/edge-placement-c
$ kubectl ws root:my-org:wmw-s
Current workspace is "root:my-org:wmw-s".
$ kubectl get edgeplacements -o name
edgeplacement.edge.kcp.io/edge-placement-s
"""
COMMON_RESOLVED = """\
$ kubectl ws root:my-org:wmw-c
Current workspace is "root:my-org:wmw-c".
$ kubectl get SinglePlacementSlice -o yaml
apiVersion: v1
items:
- apiVersion: edge.kcp.io/v1alpha1
  destinations:
  - cluster: y2vvakjnwxns951p
    locationName: location-g
    syncTargetName: sync-target-g
    syncTargetUID: 6be95d47-e85e-474d-9367-bb00e1074718
  - cluster: y2vvakjnwxns951p
    locationName: location-f
    syncTargetName: sync-target-f
    syncTargetUID: f42b9446-97c5-42a7-a514-0af32350289d
  kind: SinglePlacementSlice
  metadata:
    annotations:
      kcp.io/cluster: 1em0rxri71aqmd41
    creationTimestamp: "2023-04-07T02:52:09Z"
    generation: 1
    name: edge-placement-c
    ownerReferences:
    - apiVersion: edge.kcp.io/v1alpha1
      kind: EdgePlacement
      name: edge-placement-c
      uid: 598bbf90-2487-42f6-bf02-0c9f8511acce
    resourceVersion: "1154"
    uid: 4e69bd90-ce13-4d62-8deb-f500216757eb
kind: List
metadata:
  resourceVersion: ""
"""
SPECIAL_RESOLVED = """\
$ kubectl ws root:my-org:wmw-s
Current workspace is "root:my-org:wmw-s".
$ kubectl get SinglePlacementSlice -o yaml
apiVersion: v1
items:
- apiVersion: edge.kcp.io/v1alpha1
  destinations:
  - cluster: y2vvakjnwxns951p
    locationName: location-g
    syncTargetName: sync-target-g
    syncTargetUID: 6be95d47-e85e-474d-9367-bb00e1074718
  kind: SinglePlacementSlice
  metadata:
    annotations:
      kcp.io/cluster: 109isachksto3pdr
    creationTimestamp: "2023-04-07T02:52:09Z"
    generation: 1
    name: edge-placement-s
    ownerReferences:
    - apiVersion: edge.kcp.io/v1alpha1
      kind: EdgePlacement
      name: edge-placement-s
      uid: 81d83a4e-b6ef-47b0-a4ce-ddfa7de33f02
    resourceVersion: "1154"
    uid: 4e69bd90-ce13-4d62-8deb-f500216757eb
kind: List
metadata:
  resourceVersion: ""
"""
MAILBOX = """\
apiVersion: tenancy.kcp.io/v1alpha1
kind: Workspace
metadata:
  annotations:
    edge.kcp.io/sync-target-name: sync-target-g
    experimental.tenancy.kcp.io/owner: '{"username":"kcp-admin"}'
    internal.tenancy.kcp.io/cluster: hcn6m98keefp4o2a
    internal.tenancy.kcp.io/shard: 1pfxsevk
    kcp.io/cluster: 2dv8p2djmfm9sy46
  creationTimestamp: "2026-11-15T19:58:05Z"
  finalizers:
  - core.kcp.io/logicalcluster
  generation: 2
  labels:
    tenancy.kcp.io/phase: Ready
  name: 30g5y7albwhkfhse-mb-51a16dd7-5b8b-438a-9caa-d5f1d4388327
  resourceVersion: "1019"
  uid: 1ba0640c-06bf-42e7-8ed6-dbc60f491509
spec:
  URL: https://127.0.0.1:17643/clusters/hcn6m98keefp4o2a
  cluster: hcn6m98keefp4o2a
  type:
    name: universal
    path: root
status:
  conditions:
  - lastTransitionTime: "2026-11-15T19:58:06Z"
    status: "True"
    type: WorkspaceInitialized
  - lastTransitionTime: "2026-11-15T19:58:05Z"
    status: "True"
    type: WorkspaceScheduled
  phase: Ready
"""
TRANSLATOR = """\
$ kubectl ws root:espw
Current workspace is "root:espw".
$ farflung placement-translator --allclusters-context system:admin -v=2
I1115 19:58:37.108691    6447 main.go:250] "Found APIExport view" exportName="edge.kcp.io" serverURL="https://127.0.0.1:17643/services/apiexport/2dv8p2djmfm9sy46/edge.kcp.io"
...
I0418 00:32:49.789575    6849 shared_informer.go:282] Waiting for caches to sync for placement-translator
I1115 19:58:37.311154    6447 shared_informer.go:289] Caches are synced for placement-translator
...
I1115 19:58:37.632536    6447 workload-projector.go:703] "Updated SyncerConfig" … syncerConfig="the-one" resourceVersionOld="1258" resourceVersionNew="1313"
"""  # noqa: E501


def in_mailbox(name: str) -> str:
    return f"""\
$ kubectl get workspace {name} -o yaml
{MAILBOX}$ kubectl ws {name}
Current workspace is "root:espw:{name}" (type root:universal).
$ kubectl get ns
NAME      STATUS   AGE
default   Active   6s
$ kubectl get apibinding bind-edge -o jsonpath='{{.spec.reference.export.path}}:{{.spec.reference.export.name}} {{.status.phase}}'
root:espw:edge.kcp.io Bound
"""  # noqa: E501


@pytest.mark.long
def test_the_scenario_goes_as_printed_with_controllers_run_by_hand(start: Callable[..., Session]) -> None:
    """They need not run longer than it takes them."""
    session = start("--bare")
    session.type(INVENTORY + PROVIDER + MAILBOX_CONTROLLER + MAILBOXES)
    session.type(in_mailbox(mailbox_of(session, "sync-target-g")))
    session.type(COMMON + SPECIAL + IN_PROVIDER + SCHEDULER + AFTERWARDS + COMMON_RESOLVED + SPECIAL_RESOLVED)
    session.type(IN_PROVIDER)
    find_mailboxes(session)
    session.type(TRANSLATOR + FLORIN + GUILDER)
