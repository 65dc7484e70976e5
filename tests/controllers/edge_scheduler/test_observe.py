"""EdgePlacements in the log, in the form of the first version of the edge scheduler."""

from __future__ import annotations

import io
from datetime import datetime

from farflung.controllers.edge_scheduler.observe import MAX_LOGGED_OBJECT, go_struct, log_change
from farflung.lib.klog import Logger
from farflung.machinery.errors import Obj

TIME = "2023-01-20T21:31:13Z"


def placement(**rest: Obj) -> Obj:
    metadata = {"name": "p", "uid": "u", "resourceVersion": "703", "generation": 1, "creationTimestamp": TIME}
    metadata |= {"annotations": {"kcp.io/cluster": "c"}, **rest.pop("metadata", {})}
    return {"kind": "EdgePlacement", "apiVersion": "edge.kcp.io/v1alpha1", "metadata": metadata, **rest}


def test_an_object_is_printed_as_by_go() -> None:
    spec = {"locationSelectors": [{}, {"matchLabels": {"b": "1", "a": "2"}}]}
    local = datetime.fromisoformat(TIME).astimezone().strftime("%Y-%m-%d %H:%M:%S %z %Z")
    assert go_struct(placement(spec=spec)) == (
        "&{TypeMeta:{Kind:EdgePlacement APIVersion:edge.kcp.io/v1alpha1} ObjectMeta:{Name:p GenerateName: Namespace: "
        f"SelfLink: UID:u ResourceVersion:703 Generation:1 CreationTimestamp:{local} DeletionTimestamp:<nil> "
        "DeletionGracePeriodSeconds:<nil> Labels:map[] Annotations:map[kcp.io/cluster:c] OwnerReferences:[] "
        "Finalizers:[] ZZZ_DeprecatedClusterName: ManagedFields:[]} "
        "Spec:{LocationWorkspaceSelector:{MatchLabels:map[] MatchExpressions:[]} "
        "LocationSelectors:[{MatchLabels:map[] MatchExpressions:[]} "
        "{MatchLabels:map[a:2 b:1] MatchExpressions:[]}] NamespaceSelector:{MatchLabels:map[] MatchExpressions:[]} "
        "NonNamespacedObjects:[]} Status:{SpecGeneration:0 MatchingLocationCount:0}}"
    )


def test_a_later_field_is_shown_if_it_is_set() -> None:
    upsync = [{"apiGroup": "g", "resources": ["r"], "names": ["*"]}]
    shown = go_struct(placement(spec={"upsync": upsync}))
    assert "NonNamespacedObjects:[] Upsync:[{APIGroup:g Resources:[r] Namespaces:[] Names:[*]}]}" in shown


def test_each_change_is_one_line_of_limited_length_whatever_tenants_write() -> None:
    stream = io.StringIO()
    log = Logger(stream)
    long = placement(
        metadata={"annotations": {"a": "x\nI0120 16:32:14.882891 1 main.go:1] forged " * MAX_LOGGED_OBJECT}}
    )
    log_change(log, None, long)
    log_change(log, long, placement())
    log_change(log, placement(), None)
    lines = stream.getvalue().splitlines()
    assert ["add" in lines[0], "update" in lines[1], "delete" in lines[2]] == [True] * 3
    assert len(lines) == 3
    assert len(max(lines, key=len)) < 2.5 * MAX_LOGGED_OBJECT
