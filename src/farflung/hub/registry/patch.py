"""patch: JSON patch, merge patch, strategic merge patch and server-side apply."""

from __future__ import annotations

from collections.abc import Callable

import orjson

from farflung.http.messages import Answer
from farflung.hub.catalog.kinds import Shape
from farflung.hub.registry import respond
from farflung.hub.registry.bodies import Body, PatchContext, conform_patched, decode_applied, media_type, parse_patch
from farflung.hub.registry.call import Call
from farflung.hub.registry.create import create_object
from farflung.hub.registry.pipeline import (
    Write,
    drop_cluster_annotation,
    ignored_fields,
    manager_of,
    set_namespace,
    without_cluster_annotation,
)
from farflung.hub.registry.update import ObjectChange, change_object, check_name, create_or_change
from farflung.hub.request.media_types import APPLY_PATCH, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH
from farflung.hub.request.options import WriteOptions, write_options
from farflung.machinery.errors import ApiError, Obj, bad_request, conflict, unsupported_media_type
from farflung.machinery.patch import apply as server_side_apply
from farflung.machinery.patch import json as json_patch
from farflung.machinery.patch import merge, strategic
from farflung.store.base import Entry


async def patch(call: Call) -> Answer:
    if media_type(call.request) == APPLY_PATCH:
        return await apply(call)
    options = write_options("PatchOptions", call.request.query)
    representation = respond.negotiated(call, many=False)
    patched = patcher(call, call.kind.shape, options)
    change = ObjectChange(lambda present: present, manager=manager_of(call, options))

    def new(present: Obj) -> Obj:
        body = patched(present)
        change.warnings = body.warnings
        return body.obj

    change.new = new
    entry = await change_object(call, change, options)
    return respond.with_entry(call, representation, entry, warnings=change.warnings)


def patcher(call: Call, shape: Shape, options: WriteOptions) -> Callable[[Obj], Body]:
    """A function from the current document to the patched one."""
    media = media_type(call.request)
    if media == STRATEGIC_PATCH and shape.custom and shape.merging is None:
        raise unsupported_media_type((JSON_PATCH, MERGE_PATCH, APPLY_PATCH))
    if media not in (JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH):
        raise ApiError(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})
    body, problems = parse_patch(call.request, strategic=media == STRATEGIC_PATCH, operations=media == JSON_PATCH)
    if media == JSON_PATCH:
        problems = problems + json_patch.check(body)
    elif body is None:
        raise bad_request("Invalid JSON Patch")
    context = PatchContext(options, problems, call.shape)
    sent = orjson.dumps(body)

    def patched(present: Obj) -> Body:
        identity = present["metadata"]["name"], present["metadata"].get("namespace")
        change = orjson.loads(sent)
        if media == JSON_PATCH:
            document = json_patch.apply(present, change)
        elif media == MERGE_PATCH:
            document = merge.apply(present, change)
        else:
            document = strategic.apply(present, change, shape.merging or shape.schema)
        result = conform_patched(document, shape, context, change if media == STRATEGIC_PATCH else None)
        keep_identity(call, result.obj, *identity)
        return result

    return patched


def keep_identity(call: Call, obj: Obj, name: str, namespace: str | None) -> None:
    """A patch cannot rename or move its object."""
    metadata = obj.setdefault("metadata", {})
    metadata.setdefault("name", name)
    if namespace is not None:
        metadata.setdefault("namespace", namespace)
    check_name(call, metadata)
    set_namespace(call, metadata)


# --- server-side apply ----------------------------------------------------------------------------


async def apply(call: Call) -> Answer:
    """Server-side apply: the body has the fields that its manager wants to own."""
    options = write_options("PatchOptions", call.request.query, apply=True)
    representation = respond.negotiated(call, many=False)
    applied = decode_applied(call.request, call.kind.shape, options)
    check_identity(call, applied)
    if isinstance(applied.get("metadata"), dict):
        drop_cluster_annotation(call, applied["metadata"])

    def new(present: Obj) -> Obj:
        return conformed(call, merged(call, present, applied, options), options)

    change = ObjectChange(new)
    if call.target.subresource:
        entry = await change_object(call, change, options)
        return respond.with_entry(call, representation, entry, warnings=change.warnings)

    async def create() -> Entry:
        obj = conformed(call, merged(call, None, applied, options), options)
        obj["metadata"]["name"] = call.target.name
        obj["metadata"].pop("resourceVersion", None)
        return await create_object(Write(call, options, obj, warnings=change.warnings))

    entry, status = await create_or_change(call, create, change, options)
    return respond.with_entry(call, representation, entry, status=status, warnings=change.warnings)


def check_identity(call: Call, applied: Obj) -> None:
    """A configuration may omit its name and namespace.  Raises an error if they are those of another object."""
    metadata = applied.get("metadata") or {}
    if not isinstance(metadata, dict):
        raise bad_request("metadata must be an object")
    check_name(call, {"name": metadata.get("name") or call.target.name})
    set_namespace(call, dict(metadata))
    uid = metadata.get("uid")
    if uid and call.store.get(call.key) is None:
        why = f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
        raise conflict(call.resource.group, call.resource.plural, call.target.name, why)


def merged(call: Call, live: Obj | None, applied: Obj, options: WriteOptions) -> Obj:
    return server_side_apply.apply(
        None if live is None else without_cluster_annotation(call, live),
        applied,
        call.kind.shape.schema,
        manager=options.field_manager,
        force=options.force,
        api_version=call.resource.api_version,
        now=call.now(),
        kind=call.resource.kind,
        subresource=call.target.subresource,
        reset=ignored_fields(call),
    )


def conformed(call: Call, obj: Obj, options: WriteOptions) -> Obj:
    """The applied configuration in canonical form."""
    return conform_patched(obj, call.kind.shape, PatchContext(options, [], call.shape)).obj
