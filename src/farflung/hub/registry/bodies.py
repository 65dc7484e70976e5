"""Request bodies: decodes JSON, YAML and protobuf into objects that conform to their schema.

Conforming checks types, drops and reports unknown fields, and brings values into canonical form.  By `fieldValidation`
a report is an error, a warning, or ignored.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from farflung.apis import wire
from farflung.http.messages import Request
from farflung.hub.catalog.kinds import Shape, builtin_shape
from farflung.hub.request import media_types
from farflung.hub.request.negotiation import ACCEPTED
from farflung.hub.request.options import WriteOptions
from farflung.machinery import go_text
from farflung.machinery.codec import json, protobuf, yaml
from farflung.machinery.codec.protobuf import summary
from farflung.machinery.errors import (
    NAMES,
    TOO_DEEP,
    ApiError,
    Malformed,
    Obj,
    bad_request,
    go_quote,
    invalid,
    invalid_value,
    strict_text,
    unsupported_media_type,
    yaml_errors,
)

SCHEME: Final = "pkg/api/legacyscheme/scheme.go:30"
OPTIONS_SCHEME: Final = "pkg/apis/meta/internalversion/scheme/register.go:27"
NO_KIND: Final = "couldn't get version/kind; json parse error: "

#: (apiVersion, kind) → its shape; None if it is not served
Shapes = Callable[[str, str], Shape | None]


@dataclass(slots=True)
class Body:
    obj: Obj
    warnings: list[str] = field(default_factory=list)


def media_type(request: Request) -> str:
    text = request.headers.get("content-type", "")
    return text if text == media_types.JSON else text.partition(";")[0].strip().lower()


# --- whole objects --------------------------------------------------------------------------------


def decode_object(request: Request, shape: Shape, options: WriteOptions, shapes_of: Shapes) -> Body:
    """The object in the body of a create or update."""
    value, problems = _read(request, shape)
    _check_type(request, shape, value, shapes_of)
    try:
        obj, unknown = shape.conformer.conform(value)
    except Malformed as error:
        raise bad_request(f"{_unfit(shape, value)}: {error.why}") from None

    def refused(why: str) -> ApiError:
        return bad_request(f"{_unfit(shape, value)}: {why}")

    keep_reset(value, obj)
    obj["kind"], obj["apiVersion"] = shape.kind, shape.api_version
    return Body(obj, judged(problems + unknown, options, refused))


def keep_reset(sent: Obj, obj: Obj) -> None:
    """Keep an empty list of managedFields, which conforming drops: it requests to reset them."""
    metadata = sent.get("metadata")
    if isinstance(metadata, dict) and metadata.get("managedFields") == []:
        obj["metadata"]["managedFields"] = []


def judged(problems: list[str], options: WriteOptions, refused: Callable[[str], ApiError]) -> list[str]:
    """Warnings for unknown and duplicate fields.  Raises the error of `refused` if validation is strict."""
    if not problems or options.field_validation == "Ignore":
        return []
    if options.field_validation == "Strict":
        raise refused(strict_text(problems))
    return problems


def _read(request: Request, shape: Shape) -> tuple[Obj, list[str]]:
    """The body as JSON, and its duplicate fields."""
    try:
        value, problems = _parse(request, shape)
    except Malformed as error:
        reading_json = media_type(request) != media_types.YAML
        raise _unrecognized(request, shape, NO_KIND + error.why if reading_json else error.why) from None
    if value is None:
        return {}, problems
    if not isinstance(value, dict):
        target = (
            'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'
        )
        why = f"json: cannot unmarshal {NAMES[type(value)]} into Go value of type {target}"
        raise _unrecognized(request, shape, NO_KIND + why)
    return value, problems


def _parse(request: Request, shape: Shape) -> tuple[Any, list[str]]:
    match media_type(request):
        case media_types.JSON | "":
            parsed = json.parse(request.body)
        case media_types.YAML:
            parsed = yaml.parse(request.body)
        case media_types.PROTOBUF if wire.known(definition := shape.encoded or shape.definition):
            return protobuf.decode(request.body, definition, wire.MESSAGES).obj, []
        case _:
            raise unsupported_media_type(ACCEPTED)
    return parsed.value, parsed.problems


def _unrecognized(request: Request, shape: Shape, why: str) -> ApiError:
    shown = summary(request.body)
    return bad_request(f"the object provided is unrecognized (must be of type {shape.kind}): {why} ({shown})")


def _unfit(shape: Shape, value: Obj) -> str:
    version = str(value.get("apiVersion") or shape.api_version).rpartition("/")[2]
    return f'{value.get("kind") or shape.kind} in version "{version}" cannot be handled as a {shape.kind}'


def _check_type(request: Request, shape: Shape, value: Obj, shapes_of: Shapes) -> None:
    """A body may omit apiVersion and kind; others than those of the path are refused."""
    if shape.custom:
        _check_custom_type(request, shape, value)
        return
    kind, api_version = value.get("kind") or shape.kind, value.get("apiVersion") or shape.api_version
    if kind == shape.kind and api_version == shape.api_version:
        return
    if not isinstance(kind, str) or not isinstance(api_version, str):
        raise _unrecognized(request, shape, f"{NO_KIND}apiVersion and kind must be strings")
    known = shapes_of(api_version, kind) is not None
    why = _inconvertible(shape, api_version, kind) if known else _unregistered(api_version, kind)
    raise bad_request(f"{_unfit(shape, value)}: {why}")


def _check_custom_type(request: Request, shape: Shape, value: Obj) -> None:
    """The body of a custom resource must have apiVersion and kind."""
    for name, called in (("kind", "Kind"), ("apiVersion", "apiVersion")):
        sent = value.get(name)
        if sent is not None and not isinstance(sent, str):
            raise _unrecognized(request, shape, f"{NO_KIND}apiVersion and kind must be strings")
        if not sent:
            text = request.body.decode(errors="replace")
            raise _unrecognized(request, shape, f"Object '{called}' is missing in '{text}'")
    check_custom_type(shape, value)


def check_custom_type(shape: Shape, value: Obj) -> None:
    if value["apiVersion"] != shape.api_version:
        raise bad_request(
            f"the API version in the data ({value['apiVersion']}) does not match the expected API version "
            f"({shape.api_version})"
        )
    if value["kind"] != shape.kind:
        metadata = value.get("metadata")
        name = metadata.get("name") if isinstance(metadata, dict) else ""
        wrong = invalid_value("kind", value["kind"], f"must be {shape.kind}")
        raise invalid(shape.group, value["kind"], name if isinstance(name, str) else "", [wrong])


def decode_options(request: Request, shape: Shape) -> Obj:
    """DeleteOptions and other options in a body.  Unknown fields are ignored."""
    try:
        value, _ = _parse(request, shape)
    except Malformed as error:
        raise bad_request(NO_KIND + error.why) from None
    if not isinstance(value, dict):
        raise bad_request(f"the body of this request must be {shape.kind}")
    kind = value.get("kind") or shape.kind
    if kind != shape.kind:
        version = value.get("apiVersion", "")
        why = f"no kind {go_quote(str(kind))} is registered for version {go_quote(str(version))}"
        raise bad_request(f"{why} in scheme {go_quote(OPTIONS_SCHEME)}")
    try:
        return shape.conformer.conform(value).obj
    except Malformed as error:
        raise bad_request(f"{_unfit(shape, value)}: {error.why}") from None


# --- patches --------------------------------------------------------------------------------------


def parse_patch(request: Request, *, strategic: bool, operations: bool) -> tuple[Any, list[str]]:
    """A patch as JSON, and its duplicate fields."""
    try:
        parsed = json.parse(request.body, typed=False) if operations else json.parse_object(request.body)
    except Malformed as error:
        raise bad_request(error.why if strategic else f"error decoding patch: {error.why}") from None
    return parsed.value, parsed.problems


@dataclass(frozen=True, slots=True)
class PatchContext:
    """What `conform_patched` needs besides the result of a patch."""

    options: WriteOptions
    problems: list[str]  #: duplicate fields of the patch itself
    shapes: Shapes


def conform_patched(document: Any, shape: Shape, context: PatchContext, patch: Obj | None = None) -> Body:
    """The result of a patch, conformed.  `patch`: a strategic merge patch after its application, which errors show
    instead of the result."""
    # conforming drops unknown fields, which the error shows
    shown = _sorted_text(document) if shape.custom and context.options.field_validation == "Strict" else ""

    def refused(why: str) -> ApiError:
        if patch is None:
            return invalid("", "", "", [invalid_value("patch", shown or _as_text(document), why)])
        return invalid("", "", "", [invalid_value("patch", go_text.plain(patch), _unrestorable(why))])

    if not isinstance(document, dict):
        raise refused(f"json: cannot unmarshal {NAMES.get(type(document), 'null')} into Go value of type {shape.kind}")
    document = {name: document[name] for name in sorted(document)}
    _check_patched_type(document, shape, context, refused)
    try:
        obj, unknown = shape.conformer.conform(document)
    except Malformed as error:
        raise refused(error.why) from None
    keep_reset(document, obj)
    return Body(obj, judged(context.problems + unknown, context.options, refused))


def _unrestorable(why: str) -> str:
    """Type errors of strategic merge patches in upstream's words: upstream does not decode those from JSON."""
    found = MISMATCH.search(why)
    if found is None:
        return why
    kind, target = GO_KINDS.get(found[1], found[1]), found[2]
    if target.startswith("map["):
        return f"cannot restore map from {kind}"
    if target.startswith("[]"):
        return f"cannot restore slice from {kind}"
    return f"cannot restore struct from: {kind}" if "." in target else f"unrecognized type: {target}"


MISMATCH: Final = re.compile(r"cannot unmarshal (\w+).* into Go .* of type (\S+)$")
GO_KINDS: Final = {"array": "slice", "object": "map", "number": "int64"}


def _check_patched_type(document: Obj, shape: Shape, context: PatchContext, refused: Callable[[str], ApiError]) -> None:
    """A patch cannot change the kind of an object.  As upstream, first check the document as the kind that it
    claims."""
    api_version, kind = document.get("apiVersion"), document.get("kind")
    if (api_version, kind) == (shape.api_version, shape.kind):
        return
    if shape.custom and isinstance(api_version, str) and isinstance(kind, str):
        check_custom_type(shape, document)
    claimed = context.shapes(str(api_version), str(kind))
    if claimed is None:
        raise refused(_unregistered(str(api_version), str(kind)))
    try:
        claimed.conformer.conform(document)
    except Malformed as error:
        raise refused(error.why) from None
    raise refused(_inconvertible(shape, str(api_version), str(kind)))


def _unregistered(api_version: str, kind: str) -> str:
    return f"no kind {go_quote(kind)} is registered for version {go_quote(api_version)} in scheme {go_quote(SCHEME)}"


def _inconvertible(shape: Shape, api_version: str, kind: str) -> str:
    source = f"{api_version.rpartition('/')[2]}.{kind}"
    return f"converting ({source}) to ({shape.group.partition('.')[0] or 'core'}.{shape.kind}): unknown conversion"


def _as_text(document: Any) -> str:
    """A patched document in an error, as upstream prints it: only the top fields are sorted."""
    try:
        encoded = orjson.dumps(document)
    except orjson.JSONEncodeError:
        return TOO_DEEP
    text = orjson.loads(encoded)
    try:
        for entry in text["metadata"]["managedFields"]:
            entry["fieldsV1"] = orjson.loads(orjson.dumps(entry["fieldsV1"], option=orjson.OPT_SORT_KEYS))
    except (KeyError, TypeError):
        return encoded.decode()
    return orjson.dumps(text).decode()


def _sorted_text(document: Any) -> str:
    """The same for a custom resource: all fields are sorted."""
    try:
        return orjson.dumps(document, option=orjson.OPT_SORT_KEYS).decode()
    except orjson.JSONEncodeError:
        return TOO_DEEP


def decode_applied(request: Request, shape: Shape, options: WriteOptions) -> Obj:
    """The configuration of a server-side apply, not conformed: exactly the fields that the manager wants to own."""
    try:
        parsed = yaml.parse(request.body)
    except Malformed as error:
        raise bad_request(f"error decoding YAML: error converting YAML to JSON: {error.why}") from None
    if parsed.problems and options.field_validation == "Strict":
        why = yaml_errors(parsed.problems)
        raise bad_request(f"error strict decoding YAML: error converting YAML to JSON: {why}")
    value = parsed.value if parsed.value is not None else {}
    if not isinstance(value, dict):
        why = f"json: cannot unmarshal {NAMES[type(value)]} into Go value of type map[string]interface {{}}"
        raise bad_request(f"error decoding YAML: error unmarshaling JSON: while decoding JSON: {why}")
    _check_applied_type(shape, value)
    return value


def _check_applied_type(shape: Shape, value: Obj) -> None:
    api_version, kind = value.get("apiVersion", ""), value.get("kind", "")
    if (api_version, kind) == (shape.api_version, shape.kind):
        return
    group, _, version = str(api_version).rpartition("/")
    raise bad_request(f"invalid object type: {group}/{version}, Kind={kind}")


def delete_options(request: Request) -> Obj:
    definition = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"
    return decode_options(request, builtin_shape("", "v1", "DeleteOptions", definition))
