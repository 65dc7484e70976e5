"""The subresource /scale: get, update, patch and apply a Scale of an object."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from farflung.apis.autoscaling import SCALES, Scaling
from farflung.http.messages import Answer
from farflung.hub.catalog.kinds import Shape, builtin_shape
from farflung.hub.registry import patch, respond, update
from farflung.hub.registry.bodies import PatchContext, conform_patched, decode_applied, decode_object, media_type
from farflung.hub.registry.call import Call
from farflung.hub.registry.pipeline import STATUS_FIELDS, manager_of, set_managed_fields
from farflung.hub.registry.update import ObjectChange, change_object
from farflung.hub.request.media_types import APPLY_PATCH
from farflung.hub.request.negotiation import Representation
from farflung.hub.request.options import WriteOptions, write_options
from farflung.machinery import table
from farflung.machinery.errors import Obj
from farflung.machinery.fields import managed
from farflung.machinery.patch import apply as server_side_apply
from farflung.store.base import Entry


def scale_shape() -> Shape:
    return builtin_shape("autoscaling", "autoscaling/v1", "Scale", "io.k8s.api.autoscaling.v1.Scale")


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
    scale = decode_object(call.request, scale_shape(), options, call.shape).obj
    update.check_name(call, scale.setdefault("metadata", {}))
    return await write_scale(call, options, lambda present: scale)


async def patch_scale(call: Call) -> Answer:
    if media_type(call.request) == APPLY_PATCH:
        return await apply_scale(call)
    options = write_options("PatchOptions", call.request.query)
    patched = patch.patcher(call, scale_shape(), options)
    return await write_scale(call, options, lambda present: patched(present).obj)


async def apply_scale(call: Call) -> Answer:
    """The manager that applies a Scale owns the number of replicas in the object."""
    options = write_options("PatchOptions", call.request.query, apply=True)
    representation = respond.negotiated(call, many=False)
    applied = decode_applied(call.request, scale_shape(), options)
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

    change = ObjectChange(new)
    entry = await change_object(call, change, options)
    return scale_answer(call, representation, entry, change.warnings)


def applied_scale(call: Call, live: Obj, applied: Obj, options: WriteOptions) -> Obj:
    shape = scale_shape()
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

    change = ObjectChange(new, manager=manager_of(call, options))
    entry = await change_object(call, change, options)
    return scale_answer(call, representation, entry, change.warnings)
