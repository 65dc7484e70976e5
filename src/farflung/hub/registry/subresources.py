"""Subresources: /status and other second doors to an object, /scale, and what only a cluster with nodes can do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from farflung.apis.autoscaling.kinds import SCALES
from farflung.apis.autoscaling.scale import Scaling
from farflung.http.messages import Answer
from farflung.hub.catalog import shapes
from farflung.hub.endpoints import logs, pods, token_request
from farflung.hub.registry import patch, read, respond, update
from farflung.hub.registry.bodies import PatchContext, conform_patched, decode_applied, decode_object, media_type
from farflung.hub.registry.call import Call
from farflung.hub.registry.pipeline import PARTS, STATUS_FIELDS, manager_of, set_managed_fields
from farflung.hub.registry.update import Change, change_object
from farflung.hub.request.media_types import APPLY_PATCH
from farflung.hub.request.negotiation import Representation
from farflung.hub.request.options import WriteOptions, write_options
from farflung.machinery import table
from farflung.machinery.errors import ApiError, Obj, method_not_allowed, no_such_path
from farflung.machinery.fields import managed
from farflung.machinery.patch import apply as server_side_apply
from farflung.store.base import Entry

Door = Callable[[Call], Answer | Awaitable[Answer]]

METHODS: Final[Mapping[str, str]] = {
    "GET": "get",
    "PUT": "update",
    "PATCH": "patch",
    "POST": "create",
    "DELETE": "delete",
}


def dispatch(call: Call) -> Answer | Awaitable[Answer]:
    name = call.target.subresource
    described = call.resource.subresource(name)
    if described is None:
        raise call.not_found() if call.resource.custom else no_such_path()
    verb = METHODS.get(call.request.method, "")
    if verb not in described.verbs:
        raise unsupported(call, verb) if call.resource.custom else method_not_allowed()
    door = DOORS.get((name, verb))
    if door is None:
        raise not_here(call)
    return door(call)


def unsupported(call: Call, verb: str) -> ApiError:
    """A verb that a custom resource's subresource does not have, in upstream's words."""
    resource = call.resource
    message = f'{verb} is not supported on resources of kind "{resource.qualified}"'
    return ApiError(405, "MethodNotAllowed", message, {"group": resource.group, "kind": resource.plural})


def not_here(call: Call) -> ApiError:
    """Discovery lists it, as every client expects, but there is nothing behind it."""
    what = f"{call.resource.plural}/{call.target.subresource}"
    why = "it needs nodes, and there are none" if call.tools.nodes is None else "the nodes here do not offer it"
    return ApiError(501, "NotImplemented", f"{what} is not served: {why}", {})


# --- /scale ---------------------------------------------------------------------------------------


def get_scale(call: Call) -> Answer:
    return scale_answer(call, respond.negotiated(call, many=False), call.found())


def scaling_of(call: Call) -> Scaling:
    assert call.kind.scaling is not None, f"{call.resource.plural}/scale is served and cannot be scaled"
    return call.kind.scaling


def scale_answer(call: Call, representation: Representation, entry: Entry, warnings: Sequence[str] = ()) -> Answer:
    scale = scaling_of(call).scale(call.kind.read(entry))
    headers = respond.headers_of(warnings)
    if representation.as_ == "Table":
        include = table.included(call.query.get("includeObject", ""))
        row = table.row(SCALES, scale, call.tools.clock(), include, representation.version)
        metadata = {"resourceVersion": scale["metadata"]["resourceVersion"]}
        return respond.json_response(200, table.table(SCALES, [row], metadata, representation.version), headers)
    return respond.json_response(200, scale, headers)


async def update_scale(call: Call) -> Answer:
    options = write_options("UpdateOptions", call.request.query)
    scale = decode_object(call.request, shapes.scale(), options, call.shape).obj
    update.check_name(call, scale.setdefault("metadata", {}))
    return await write_scale(call, options, lambda present: scale)


async def patch_scale(call: Call) -> Answer:
    if media_type(call.request) == APPLY_PATCH:
        return await apply_scale(call)
    options = write_options("PatchOptions", call.request.query)
    patched = patch.patcher(call, shapes.scale(), options)
    return await write_scale(call, options, lambda present: patched(present).obj)


async def apply_scale(call: Call) -> Answer:
    """Who applies a Scale comes to own the number of replicas, which others own in the object itself."""
    options = write_options("PatchOptions", call.request.query, apply=True)
    representation = respond.negotiated(call, many=False)
    applied = decode_applied(call.request, shapes.scale(), options)
    patch.check_identity(call, applied)
    scaling = scaling_of(call)

    def new(present: Obj) -> Obj:
        entries = present["metadata"].get("managedFields") or []
        live = scaling.scale(present)
        set_managed_fields(live, managed.for_scale(entries, scaling.replicas))
        wanted = applied_scale(call, live, applied, options)
        scaling.apply(present, wanted)
        owners = wanted["metadata"].get("managedFields") or []
        api_version, replicas = call.resource.api_version, scaling.replicas
        set_managed_fields(present, managed.from_scale(entries, owners, api_version=api_version, replicas=replicas))
        present["metadata"]["resourceVersion"] = wanted["metadata"].get("resourceVersion", "")
        return present

    change = Change(new)
    entry = await change_object(call, change, options)
    return scale_answer(call, representation, entry, change.warnings)


def applied_scale(call: Call, live: Obj, applied: Obj, options: WriteOptions) -> Obj:
    shape = shapes.scale()
    result = server_side_apply.apply(
        live,
        applied,
        shape.schema,
        manager=options.field_manager,
        force=options.force,
        api_version=shape.api_version,
        now=call.now(),
        kind=shape.kind,
        subresource="scale",
        reset=STATUS_FIELDS,
    )
    return conform_patched(result, shape, PatchContext(options, [], call.shape)).obj


async def write_scale(call: Call, options: WriteOptions, wanted: Callable[[Obj], Obj]) -> Answer:
    """`wanted`: the present scale → the wanted one."""
    representation = respond.negotiated(call, many=False)

    def new(present: Obj) -> Obj:
        scale = wanted(scaling_of(call).scale(present))
        scaling_of(call).apply(present, scale)
        present["metadata"]["resourceVersion"] = scale.get("metadata", {}).get("resourceVersion", "")
        return present

    change = Change(new, manager=manager_of(call, options))
    entry = await change_object(call, change, options)
    return scale_answer(call, representation, entry, change.warnings)


# --- /log -----------------------------------------------------------------------------------------


def get_log(call: Call) -> Answer:
    if call.tools.nodes is None:
        raise not_here(call)
    return logs.get_log(call, call.tools.nodes)


# --- the doors ------------------------------------------------------------------------------------

DOORS: Final[Mapping[tuple[str, str], Door]] = {
    **{(name, "get"): read.get for name in ("status", *PARTS)},
    **{(name, "update"): update.update for name in ("status", *PARTS)},
    **{(name, "patch"): patch.patch for name in ("status", *PARTS)},
    ("token", "create"): token_request.create_token,
    ("binding", "create"): pods.bind,
    ("eviction", "create"): pods.evict,
    ("log", "get"): get_log,
    ("scale", "get"): get_scale,
    ("scale", "update"): update_scale,
    ("scale", "patch"): patch_scale,
}
