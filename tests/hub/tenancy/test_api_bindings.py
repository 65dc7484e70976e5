"""What becomes of exports and bindings as they are written."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

import orjson
import pytest
from apis_harness import DEFINITION, EXPORT, LATER, NOW, SCHEMA, URL, LocalApis, condition, widget_schema

from farflung.apis.kcp.names import ExportReference
from farflung.hub.auth.authorizer import Authorizer
from farflung.hub.request.target import Target
from farflung.hub.request.user import User
from farflung.hub.tenancy import api_bindings, status
from farflung.hub.tenancy import api_bindings as bindings
from farflung.hub.tenancy import api_exports as exports
from farflung.hub.tenancy.api_bindings import ResourceNames
from farflung.hub.tenancy.api_exports import SECRET
from farflung.hub.tenancy.binding_strategy import API_BINDING, OR_MISSING
from farflung.hub.tenancy.direct_writes import NAMESPACE
from farflung.hub.tenancy.status import ConditionState
from farflung.machinery.errors import ApiError

WIDGETS = ResourceNames("ex.test", "widgets", "widget", ("wi",), "Widget", "WidgetList")


async def provided(**spec: Any) -> LocalApis:
    """A provider that exports widgets, and a consumer."""
    local = LocalApis()
    await local.root()
    await local.cluster("prov")
    await local.cluster("cons")
    await local.schema("c-prov", widget_schema())
    await local.export("c-prov", "ex.test", "v1.widgets.ex.test", **spec)
    return local


def met(obj: dict[str, Any]) -> list[str]:
    return [one["type"] for one in obj["status"]["conditions"] if one["status"] == "True"]


# --- exports ------------------------------------------------------------------------------------------


async def test_an_export_gets_an_identity_a_path_and_an_address() -> None:
    local = await provided()
    export = local.read(EXPORT, "c-prov", "ex.test")
    assert export["metadata"]["annotations"] == {"kcp.io/path": "root:prov", "kcp.io/cluster": "c-prov"}
    assert export["metadata"]["generation"] == 2
    assert export["spec"]["identity"] == {"secretRef": {"name": "ex.test", "namespace": "kcp-system"}}
    assert met(export) == ["IdentityValid", "VirtualWorkspaceURLsReady"]
    assert export["status"]["virtualWorkspaces"] == [{"url": f"{URL}/services/apiexport/c-prov/ex.test"}]
    assert local.read(NAMESPACE, "c-prov", "kcp-system")["status"] == {"phase": "Active"}
    key = base64.b64decode(local.read(SECRET, "c-prov", "ex.test", "kcp-system")["data"]["key"])
    assert len(key) == 43
    assert export["status"]["identityHash"] == hashlib.sha256(key).hexdigest()


async def test_two_exports_have_two_identities_and_one_that_comes_again_has_the_one_it_had() -> None:
    local = await provided()
    first = local.read(EXPORT, "c-prov", "ex.test")["status"]["identityHash"]
    other = await local.export("c-prov", "other")
    assert other["status"]["identityHash"] != first
    await local.remove(EXPORT, "c-prov", "ex.test")
    assert (await local.export("c-prov", "ex.test"))["status"]["identityHash"] == first


async def test_a_lost_or_changed_identity_is_reported_and_its_hash_stays() -> None:
    local = await provided()
    first = local.read(EXPORT, "c-prov", "ex.test")["status"]["identityHash"]
    lost = await local.change_export(
        "c-prov", "ex.test", identity={"secretRef": {"namespace": "default", "name": "nosuch"}}
    )
    assert lost["status"]["identityHash"] == first
    assert condition(lost, "IdentityValid") == {
        "type": "IdentityValid",
        "status": "False",
        "severity": "Error",
        "reason": "IdentityVerificationFailed",
        "message": 'secrets "nosuch" not found',
        "lastTransitionTime": LATER,
    }
    await local.export("c-prov", "other")
    changed = await local.change_export(
        "c-prov", "ex.test", identity={"secretRef": {"namespace": "kcp-system", "name": "other"}}
    )
    assert changed["status"]["identityHash"] == first
    assert "mismatch" in condition(changed, "IdentityValid")["message"]
    back = await local.change_export(
        "c-prov", "ex.test", identity={"secretRef": {"namespace": "kcp-system", "name": "ex.test"}}
    )
    assert met(back) == ["IdentityValid", "VirtualWorkspaceURLsReady"]


async def test_nothing_that_is_told_of_an_identity_tells_the_key() -> None:
    local = await provided()
    secret = local.read(SECRET, "c-prov", "ex.test", "kcp-system")["data"]["key"]
    await local.export("c-prov", "other")
    spec = {"secretRef": {"namespace": "kcp-system", "name": "other"}}
    changed = await local.change_export("c-prov", "ex.test", identity=spec)
    told = str(changed)
    assert secret not in told
    assert base64.b64decode(secret).decode() not in told
    other = base64.b64decode(local.read(SECRET, "c-prov", "other", "kcp-system")["data"]["key"])
    assert hashlib.sha256(other).hexdigest() not in told


async def test_an_export_that_a_replacement_leaves_without_identity_keeps_it() -> None:
    local = await provided()
    old = local.read(EXPORT, "c-prov", "ex.test")
    new = {**old, "spec": {"latestResourceSchemas": ["v1.widgets.ex.test"]}}
    new["metadata"] = {**old["metadata"], "generation": 3}
    await local.exporter.finish_export("c-prov", new, old, LATER)
    assert new == old


@pytest.mark.parametrize("data", [None, {}, {"key": ""}, {"key": "%%%"}, {"other": "YQ=="}])
def test_a_secret_without_a_key_is_no_identity(data: Any) -> None:
    identity = exports.read_identity({"data": data}, "x")
    assert identity == exports.ExportIdentity(problem='secret "x" has no data at key "key"')


# --- bindings -----------------------------------------------------------------------------------------


async def test_a_binding_is_bound_and_served_at_once() -> None:
    local = await provided()
    identity = local.read(EXPORT, "c-prov", "ex.test")["status"]["identityHash"]
    uid = local.read(SCHEMA, "c-prov", "v1.widgets.ex.test")["metadata"]["uid"]
    binding = await local.bind("c-cons", "w", "root:prov", "ex.test")
    label = bindings.label_of("c-prov", "ex.test")
    assert binding["metadata"]["finalizers"] == ["apis.kcp.io/apibinding-finalizer"]
    assert binding["metadata"]["labels"] == {
        "internal.apis.kcp.io/export": label,
        f"claimed.internal.apis.kcp.io/{label}": api_bindings.OWN_BINDING,
    }
    status = binding["status"]
    assert status["phase"] == "Bound"
    assert status["apiExportClusterName"] == "c-prov"
    assert status["boundResources"] == [
        {
            "group": "ex.test",
            "resource": "widgets",
            "schema": {"name": "v1.widgets.ex.test", "UID": uid, "identityHash": identity},
            "storageVersions": ["v1"],
        }
    ]
    assert status["conditions"] == [
        {"type": type_, "status": "True", "lastTransitionTime": NOW}
        for type_ in (
            "Ready",
            "APIExportValid",
            "BindingUpToDate",
            "InitialBindingCompleted",
            "PermissionClaimsApplied",
            "PermissionClaimsValid",
        )
    ]
    kind = local.kinds.of("c-cons").of("ex.test", "v1", "widgets")
    assert kind.resource.identity == identity
    assert local.kinds.of("c-prov").find("ex.test", "v1", "widgets") is None


async def test_a_missing_export_is_reported_and_bound_once_it_is_created() -> None:
    local = await provided()
    binding = await local.bind("c-cons", "w", "root", "later")
    assert binding["status"] == {
        "phase": "Binding",
        "conditions": [
            {
                "type": "Ready",
                "status": "False",
                "severity": "Info",
                "reason": "WaitingForEstablished",
                "message": "Waiting for API(s) to be established",
                "lastTransitionTime": NOW,
            },
            {
                "type": "APIExportValid",
                "status": "False",
                "severity": "Error",
                "reason": "APIExportNotFound",
                "message": "APIExport root|later not found",
                "lastTransitionTime": NOW,
            },
            {
                "type": "InitialBindingCompleted",
                "status": "False",
                "severity": "Info",
                "reason": "WaitingForEstablished",
                "message": "Waiting for API(s) to be established",
                "lastTransitionTime": NOW,
            },
        ],
    }
    assert list(local.apis.missing("later")) == ["/apis.kcp.io/apibindings/c-cons/w"]
    await local.export("root", "later")
    assert (await local.change_binding("c-cons", "w"))["status"]["phase"] == "Bound"
    assert list(local.apis.missing("later")) == []


async def test_an_export_with_a_missing_schema_cannot_be_bound() -> None:
    local = await provided()
    await local.export("c-prov", "broken", "v1.nosuch.ex.test")
    binding = await local.bind("c-cons", "b", "root:prov", "broken")
    assert binding["status"]["phase"] == "Binding"
    invalid = condition(binding, "APIExportValid")
    assert (invalid["reason"], invalid["message"]) == (
        "InternalError",
        "Invalid APIExport. Please contact the APIExport owner to resolve",
    )
    assert met(binding) == ["PermissionClaimsApplied", "PermissionClaimsValid"]


async def test_an_empty_export_is_bound_to_nothing() -> None:
    local = await provided()
    await local.export("c-prov", "empty")
    binding = await local.bind("c-cons", "e", "root:prov", "empty")
    assert binding["status"]["phase"] == "Bound"
    assert "boundResources" not in binding["status"]


async def test_a_second_binding_of_the_same_resource_stays_unbound_and_changes_nothing() -> None:
    local = await provided()
    await local.bind("c-cons", "w", "root:prov", "ex.test")
    second = await local.bind("c-cons", "w2", "root:prov", "ex.test")
    message = (
        'Unable to bind APIs: naming conflict with APIBinding "w" bound to APIExport root:prov:ex.test, '
        "spec.names.plural=widgets is forbidden"
    )
    assert second["status"]["phase"] == "Binding"
    for type_ in ("BindingUpToDate", "InitialBindingCompleted"):
        told = condition(second, type_)
        assert (told["reason"], told["message"]) == ("NamingConflicts", message)
    assert condition(second, "Ready")["reason"] == "WaitingForEstablished"
    await local.export("c-prov", "empty")
    assert (await local.bind("c-cons", "good", "root:prov", "empty"))["status"]["phase"] == "Bound"
    assert (await local.change_binding("c-cons", "w"))["status"]["phase"] == "Bound"


async def test_a_binding_does_not_shadow_a_definition() -> None:
    local = await provided()
    await local.definition("c-cons", "widgets", "ex.test", "Widget")
    binding = await local.bind("c-cons", "w", "root:prov", "ex.test")
    assert condition(binding, "BindingUpToDate")["message"] == (
        'Unable to bind APIs: cannot create CustomResourceDefinition with "ex.test" group and "widgets" resource '
        'because it overlaps with "widgets.ex.test" CustomResourceDefinition in "c-cons" logical cluster'
    )
    assert local.kinds.of("c-cons").of("ex.test", "v1", "widgets").resource.identity == ""
    await local.remove(DEFINITION, "c-cons", "widgets.ex.test")
    assert (await local.change_binding("c-cons", "w"))["status"]["phase"] == "Bound"


async def test_what_every_workspace_has_cannot_be_taken_over() -> None:
    local = await provided()
    names = {"kind": "ConfigMap", "plural": "configmaps"}
    await local.schema("c-prov", widget_schema("evil.configmaps.core", group="", names=names))
    names = {"kind": "APIBinding", "plural": "apibindings"}
    await local.schema("c-prov", widget_schema("evil.apibindings.apis.kcp.io", group="apis.kcp.io", names=names))
    for schema in ("evil.configmaps.core", "evil.apibindings.apis.kcp.io"):
        await local.export("c-prov", schema, schema)
        binding = await local.bind("c-cons", schema, "root:prov", schema)
        assert condition(binding, "BindingUpToDate")["reason"] == "NamingConflicts"
    assert not local.kinds.of("c-cons").of("", "v1", "configmaps").resource.identity


async def test_changes_of_an_export_reach_its_bindings_and_what_it_drops_stays_bound() -> None:
    local = await provided()
    await local.bind("c-cons", "w", "root:prov", "ex.test")
    column = {"name": "Size", "type": "integer", "jsonPath": ".spec.size"}
    newer = widget_schema("v2.widgets.ex.test")
    newer["spec"]["versions"][0]["additionalPrinterColumns"] = [column]
    await local.schema("c-prov", newer)
    await local.change_export("c-prov", "ex.test", latestResourceSchemas=["v2.widgets.ex.test"])
    binding = await local.change_binding("c-cons", "w")
    assert [one["schema"]["name"] for one in binding["status"]["boundResources"]] == ["v2.widgets.ex.test"]
    columns = local.kinds.of("c-cons").of("ex.test", "v1", "widgets").resource.printer.columns
    assert [one.name for one in columns] == ["Name", "Size"]
    await local.change_export("c-prov", "ex.test", latestResourceSchemas=[])
    binding = await local.change_binding("c-cons", "w")
    assert [one["resource"] for one in binding["status"]["boundResources"]] == ["widgets"]


async def test_bound_kinds_are_served_after_their_export_and_schema_are_deleted_and_the_hub_restarts() -> None:
    local = await provided()
    await local.bind("c-cons", "w", "root:prov", "ex.test")
    await local.remove(SCHEMA, "c-prov", "v1.widgets.ex.test")
    await local.remove(EXPORT, "c-prov", "ex.test")
    binding = await local.change_binding("c-cons", "w")
    assert binding["status"]["phase"] == "Bound"
    assert condition(binding, "Ready")["status"] == "True"
    assert condition(binding, "APIExportValid")["message"] == "APIExport root:prov|ex.test not found"
    again = LocalApis(local.store)
    assert again.kinds.of("c-cons").find("ex.test", "v1", "widgets") is not None


async def test_a_binding_stays_with_the_export_that_it_found() -> None:
    local = await provided()
    await local.bind("c-cons", "w", "root:prov", "ex.test")
    await local.remove(EXPORT, "c-prov", "ex.test")
    entry = local.store.get("/tenancy.kcp.io/workspaces/root/prov")
    assert entry is not None
    await local.store.delete(entry.key, expect=entry.revision)
    await local.cluster("prov", cluster="c-another")
    await local.schema("c-another", widget_schema())
    await local.export("c-another", "ex.test", "v1.widgets.ex.test")
    binding = await local.change_binding("c-cons", "w")
    assert binding["status"]["apiExportClusterName"] == "c-prov"
    assert condition(binding, "APIExportValid")["reason"] == "APIExportNotFound"


async def test_an_export_with_another_identity_is_not_bound_instead() -> None:
    local = await provided()
    first = await local.bind("c-cons", "w", "root:prov", "ex.test")
    await local.remove(EXPORT, "c-prov", "ex.test")
    entry = local.store.get("/core/secrets/c-prov/kcp-system/ex.test")
    assert entry is not None
    await local.store.delete(entry.key, expect=entry.revision)
    await local.export("c-prov", "ex.test", "v1.widgets.ex.test")
    binding = await local.change_binding("c-cons", "w")
    assert binding["status"]["boundResources"] == first["status"]["boundResources"]
    assert condition(binding, "APIExportValid")["reason"] == "IdentityMismatch"


async def test_workspaces_that_bind_the_same_share_all_that_is_compiled() -> None:
    local = await provided()
    await local.cluster("cons2")
    await local.bind("c-cons", "w", "root:prov", "ex.test")
    await local.bind("c-cons2", "w", "root:prov", "ex.test")
    assert local.kinds.of("c-cons") is local.kinds.of("c-cons2")


async def test_while_a_binding_ends_nothing_is_created() -> None:
    local = await provided()
    binding = await local.bind("c-cons", "w", "root:prov", "ex.test")
    binding["metadata"]["deletionTimestamp"] = LATER
    await local.write(API_BINDING, "c-cons", binding)
    verbs = local.kinds.of("c-cons").of("ex.test", "v1", "widgets").resource.verbs
    assert "create" not in verbs
    assert "delete" in verbs
    await local.remove(API_BINDING, "c-cons", "w")
    assert local.kinds.of("c-cons").find("ex.test", "v1", "widgets") is None


async def test_of_two_that_were_bound_at_the_same_time_the_older_one_stays() -> None:
    local = await provided()
    first = await local.bind("c-cons", "a", "root:prov", "ex.test")
    again = {**first, "metadata": {**first["metadata"], "name": "b"}}
    await local._put(API_BINDING, "c-cons", again)
    assert (await local.change_binding("c-cons", "a"))["status"]["phase"] == "Bound"
    loser = await local.change_binding("c-cons", "b")
    assert condition(loser, "BindingUpToDate")["reason"] == "NamingConflicts"


async def test_annotations_for_bindings_come_and_go_with_the_export() -> None:
    local = await provided()
    export = local.read(EXPORT, "c-prov", "ex.test")
    export["metadata"]["annotations"] |= {"extra.apis.kcp.io/foo": "bar", "other": "x"}
    await local.write(EXPORT, "c-prov", export)
    binding = await local.bind("c-cons", "w", "root:prov", "ex.test")
    assert binding["metadata"]["annotations"] == {"extra.apis.kcp.io/foo": "bar", "kcp.io/cluster": "c-cons"}
    del export["metadata"]["annotations"]["extra.apis.kcp.io/foo"]
    await local.write(EXPORT, "c-prov", export)
    binding = await local.change_binding("c-cons", "w")
    assert binding["metadata"]["annotations"] == {"kcp.io/cluster": "c-cons"}


async def test_default_bindings_are_bound_as_they_are_written() -> None:
    local = await provided()
    [(key, value)] = local.binder.bind("c-cons", [ExportReference("root:prov", "ex.test")], NOW)
    await local.store.put(key, value, expect=0)
    assert key.startswith("/apis.kcp.io/apibindings/c-cons/ex.test-")
    assert local.kinds.of("c-cons").find("ex.test", "v1", "widgets") is not None


async def test_default_bindings_of_two_workspaces_differ_in_nothing_but_their_names() -> None:
    local = await provided()
    for cluster in ("c-one", "c-two"):
        [(key, value)] = local.binder.bind(cluster, [ExportReference("root:prov", "ex.test")], NOW)
        name = key.rpartition("/")[2]
        same, exactly = local.binder.binding(cluster, name, "root:prov", "ex.test", NOW)
        found, expected = orjson.loads(value), orjson.loads(exactly)
        assert found["metadata"].pop("uid") != expected["metadata"].pop("uid")
        assert (key, found) == (same, expected)
        assert found["metadata"]["annotations"] == {"kcp.io/cluster": cluster}


async def test_default_bindings_follow_their_export_and_leave_used_names_alone() -> None:
    local = await provided()

    def bound(cluster: str, now: str) -> dict[str, Any]:
        [(_, value)] = local.binder.bind(cluster, [ExportReference("root:prov", "ex.test")], now)
        obj: dict[str, Any] = orjson.loads(value)
        return obj

    assert bound("c-one", NOW)["status"]["phase"] == "Bound"
    assert condition(bound("c-two", LATER), "Ready")["lastTransitionTime"] == LATER
    await local.definition("c-cons", "widgets", "ex.test", "Widget")
    assert condition(bound("c-cons", LATER), "BindingUpToDate")["reason"] == "NamingConflicts"
    await local.change_export("c-prov", "ex.test", latestResourceSchemas=[])
    assert "boundResources" not in bound("c-three", LATER)["status"]
    await local.remove(EXPORT, "c-prov", "ex.test")
    assert condition(bound("c-four", LATER), "APIExportValid")["reason"] == "APIExportNotFound"


async def test_a_kind_is_found_by_its_identity_where_it_is_bound() -> None:
    local = await provided()
    binding = await local.bind("c-cons", "w", "root:prov", "ex.test")
    identity = binding["status"]["boundResources"][0]["schema"]["identityHash"]
    local.kinds.set_identity_lookup(local.apis.kind)

    def found(cluster: str, plural: str, version: str = "v1", view: str = "") -> bool:
        return local.kinds.find(Target(cluster, "ex.test", version, plural, view=view)) is not None

    assert found("*", f"widgets:{identity}")
    assert found("c-cons", f"widgets:{identity}")
    assert not found("c-prov", f"widgets:{identity}")
    assert not found("*", f"widgets:{identity}", "v2")
    assert not found("*", f"widgets:{identity}", view="c-prov/ex.test")
    assert not found("*", "widgets:deadbeef")
    assert not found("c-cons", "widgets:")
    assert not found("*", "widgets")


# --- who may bind -------------------------------------------------------------------------------------

NOBODY = User("nobody", ("system:authenticated",))
ADMIN = User("admin", ("system:masters",))


@pytest.mark.parametrize("reference", [ExportReference("root:prov", "ex.test"), ExportReference("root:prov", "nosuch")])
async def test_a_user_who_may_not_bind_an_export_does_not_learn_whether_it_exists(reference: ExportReference) -> None:
    local = await provided()
    with pytest.raises(ApiError) as caught:
        local.binder.check_may_bind("c-cons", NOBODY, Authorizer(local.store), "b1", reference, "create", "APIBinding")
    assert caught.value.code == 403
    assert caught.value.message == (
        'apibindings.apis.kcp.io "b1" is forbidden: unable to create APIBinding: no permission to bind to export '
        f"root:prov:{reference.name}{OR_MISSING}"
    )


@pytest.mark.parametrize(
    ("reference", "why"),
    [
        (ExportReference("root:prov", "nosuch"), "the APIExport nosuch does not exist in the workspace root:prov"),
        (ExportReference("root:prow", "ex.test"), "the workspace root:prow does not exist"),
    ],
)
async def test_an_administrator_learns_what_does_not_exist(reference: ExportReference, why: str) -> None:
    local = await provided()
    with pytest.raises(ApiError) as caught:
        local.binder.check_may_bind("c-cons", ADMIN, Authorizer(local.store), "b1", reference, "create", "APIBinding")
    assert caught.value.code == 403
    assert caught.value.message.endswith(f"unable to create APIBinding: {why}")


@pytest.mark.parametrize(
    "reference",
    [
        ExportReference("root:nosuch", "ex.test"),
        ExportReference("Bad_Path", "ex.test"),
        ExportReference("root:prov", ""),
        ExportReference("root:prov", "nosuch"),
        ExportReference("root:prov", "a/b"),
        ExportReference("..", "ex.test"),
        ExportReference("*", "ex.test"),
    ],
)
async def test_what_is_not_there_cannot_be_bound_by_anybody(reference: ExportReference) -> None:
    local = await provided()
    with pytest.raises(ApiError):
        local.binder.check_may_bind("c-cons", ADMIN, Authorizer(local.store), "b1", reference, "create", "APIBinding")


@pytest.mark.parametrize(
    "reference", [ExportReference("", "later"), ExportReference("root", "later"), ExportReference("c-prov", "ex.test")]
)
async def test_exports_of_the_own_workspace_and_of_root_may_come_later(reference: ExportReference) -> None:
    local = await provided()
    local.binder.check_may_bind("c-cons", ADMIN, Authorizer(local.store), "b1", reference, "create", "APIBinding")


# --- claims -------------------------------------------------------------------------------------------

CLAIM = {"group": "", "resource": "configmaps", "all": True}


async def test_a_claim_counts_once_it_is_accepted_as_it_is() -> None:
    local = await provided(permissionClaims=[CLAIM])
    binding = await local.bind("c-cons", "w", "root:prov", "ex.test")
    shown = {"all": True, "resource": "configmaps"}
    assert binding["status"]["exportPermissionClaims"] == [shown]
    assert "appliedPermissionClaims" not in binding["status"]
    accepted = [{**CLAIM, "state": "Accepted"}]
    binding = await local.change_binding("c-cons", "w", permissionClaims=accepted)
    assert binding["status"]["appliedPermissionClaims"] == [shown]
    rejected = [{**CLAIM, "state": "Rejected"}]
    binding = await local.change_binding("c-cons", "w", permissionClaims=rejected)
    assert "appliedPermissionClaims" not in binding["status"]
    await local.change_binding("c-cons", "w", permissionClaims=accepted)
    some = [{"resource": "configmaps", "resourceSelector": [{"name": "a"}]}]
    await local.change_export("c-prov", "ex.test", permissionClaims=some)
    binding = await local.change_binding("c-cons", "w")
    assert "appliedPermissionClaims" not in binding["status"]
    assert condition(binding, "PermissionClaimsValid")["reason"] == "InvalidPermissionClaims"


def test_a_claim_with_a_selector_is_about_some_objects() -> None:
    claim = api_bindings.claim_of(
        {"resource": "configmaps", "resourceSelector": [{"name": "a", "namespace": "x"}, {"namespace": "y"}]}
    )
    assert claim.admits("x", "a")
    assert claim.admits("y", "anything")
    assert not claim.admits("x", "b")
    assert not claim.admits("z", "a")


# --- pure decisions -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (WIDGETS._replace(plural="gadgets", singular="gadget", short_names=(), kind="G", list_kind="GL"), ""),
        (WIDGETS._replace(group="other.test"), ""),
        (WIDGETS._replace(plural="gadgets", singular="wi"), "spec.names.singular=wi"),
        (WIDGETS._replace(plural="g", singular="g", short_names=("x", "widget")), "spec.names.shortNames=widget"),
        (WIDGETS._replace(plural="g", singular="g", short_names=()), "spec.names.kind=Widget"),
        (WIDGETS._replace(plural="g", singular="g", short_names=(), kind="WidgetList"), "spec.names.kind=WidgetList"),
    ],
)
def test_names_clash_within_a_group(names: ResourceNames, told: str) -> None:
    taken = bindings.taken_by_binding(WIDGETS, "w", "root:prov", "ex.test")
    clash = bindings.name_conflict([names], [taken])
    assert clash == (f"{taken.of}, {told} is forbidden" if told else "")


def test_a_condition_that_says_what_it_said_keeps_its_time() -> None:
    first = status.merge_conditions(
        [], [ConditionState("B"), ConditionState("Ready"), ConditionState("A", "Why", "because")], NOW
    )
    assert [one["type"] for one in first] == ["Ready", "A", "B"]
    again = status.merge_conditions(first, [ConditionState("B"), ConditionState("A", "Why", "otherwise")], LATER)
    assert [one["lastTransitionTime"] for one in again] == [NOW, LATER, NOW]


@pytest.mark.parametrize(
    "spec",
    [None, 5, [], "x", {"reference": 5}, {"reference": {"export": "x"}}, {"reference": {"export": {"name": 5}}}]
    + [{"permissionClaims": claims_} for claims_ in (5, "x", [5, None, {"group": ""}], {"a": 1})],
)
async def test_a_binding_that_is_nonsense_is_left_to_validation(spec: Any) -> None:
    local = await provided()
    local.binder.admit_binding("c-cons", {"metadata": {"name": "x"}, "spec": spec})
