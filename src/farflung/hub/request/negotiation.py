"""Content negotiation: the representation of a response, by the Accept header.

The first acceptable clause wins, by quality.  A clause may request another shape of the same data:
`application/json;as=Table;v=v1;g=meta.k8s.io`.  Clauses that the hub cannot satisfy are ignored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from farflung.apis import wire
from farflung.apis.resource import Resource
from farflung.hub.request import media_types
from farflung.lib.memory import remember
from farflung.machinery.errors import ApiError, not_acceptable

JSON: Final = "json"
YAML: Final = "yaml"
PROTOBUF: Final = "protobuf"

MEDIA_TYPES: Final = {
    JSON: media_types.JSON,
    YAML: media_types.YAML,
    PROTOBUF: media_types.PROTOBUF,
}
STREAM_TYPES: Final = (f"{media_types.JSON};stream=watch", f"{media_types.PROTOBUF};stream=watch")
ACCEPTED: Final = tuple(MEDIA_TYPES.values())

META_VERSIONS: Final = ("v1", "v1beta1")
TABLE: Final = "Table"
PARTIAL: Final = "PartialObjectMetadata"
PARTIAL_LIST: Final = "PartialObjectMetadataList"


@dataclass(frozen=True, slots=True)
class Representation:
    """The encoding and the shape of a response."""

    media: str = JSON  #: json, yaml or protobuf
    as_: str = ""  #: Table, PartialObjectMetadata, PartialObjectMetadataList; empty: the object itself
    version: str = ""  #: of that shape

    @property
    def content_type(self) -> str:
        return MEDIA_TYPES[self.media]

    @property
    def stream_type(self) -> str:
        """The content type of a watch."""
        return MEDIA_TYPES[JSON] if self.media == JSON else f"{MEDIA_TYPES[self.media]};stream=watch"


@dataclass(frozen=True, slots=True)
class AcceptClause:
    """One alternative of an Accept header."""

    type: str
    subtype: str
    quality: float
    parameters: tuple[tuple[str, str], ...]

    @property
    def media_type(self) -> str:
        return f"{self.type}/{self.subtype}"

    def covers(self, media_type: str) -> bool:
        type_, _, subtype = media_type.partition("/")
        return self.type in (type_, "*") and self.subtype in (subtype, "*")


def negotiate(accept: str, resource: Resource, *, many: bool = False, watch: bool = False) -> Representation:
    """The representation of one object or `many`, or of a watch.  Raises 406."""
    representation = chosen(accept, resource.custom, wire.known(resource.definition), many, watch)
    if representation.as_ in (PARTIAL, PARTIAL_LIST):
        check_number(representation, resource, many=many and not watch)
    return representation


@remember(512)
def chosen(accept: str, custom: bool, in_protobuf: bool, many: bool, watch: bool) -> Representation:
    clauses = parse(accept)
    if not custom and not routable(clauses):
        raise not_routable(many)
    if watch:
        offered: tuple[str, ...] = (JSON,)
    else:
        offered = (JSON, YAML, PROTOBUF) if in_protobuf else (JSON, YAML)
    for clause in clauses:
        for media in offered:
            if clause.covers(MEDIA_TYPES[media]) and (shape := shape_of(clause, media)) is not None:
                return Representation(media, *shape)
    raise not_acceptable(STREAM_TYPES if watch else ACCEPTED)


def shape_of(clause: AcceptClause, media: str) -> tuple[str, str] | None:
    """The shape and its version that a clause requests; None if this encoding does not have it."""
    parameters = dict(clause.parameters)
    if parameters.get("stream", "watch") != "watch":
        return None
    if not parameters.keys() & {"as", "g", "v"}:
        return "", ""
    shape, version = parameters.get("as", ""), parameters.get("v", "")
    known = (
        shape in (TABLE, PARTIAL, PARTIAL_LIST) and version in META_VERSIONS and parameters.get("g") == "meta.k8s.io"
    )
    return (shape, version) if known and media != PROTOBUF else None


def parse(accept: str) -> Sequence[AcceptClause]:
    """The clauses of a header, best first.  Without a header everything is acceptable."""
    if not accept:
        return (AcceptClause("*", "*", 1.0, ()),)
    clauses = [clause for text in accept.split(",") if (clause := parse_clause(text)) is not None]
    clauses.sort(key=lambda one: (-one.quality, one.type == "*", one.subtype == "*"))
    return clauses


def parse_clause(text: str) -> AcceptClause | None:
    media_type, *rest = text.split(";")
    type_, slash, subtype = media_type.strip().partition("/")
    if not slash:
        if type_ != "*":
            return None
        subtype = "*"
    quality = 1.0
    parameters: list[tuple[str, str]] = []
    for parameter in rest:
        name, _, value = (piece.strip() for piece in parameter.partition("="))
        if name == "q":
            quality = number(value)
        else:
            parameters.append((name, value))
    return AcceptClause(type_.strip(), subtype.strip(), quality, tuple(parameters))


def number(text: str) -> float:
    """A quality; an invalid one is 0."""
    try:
        value = float(text)
    except ValueError:
        return 0.0
    return value if 0.0 <= value <= 1.0 else 0.0


def routable(clauses: Sequence[AcceptClause]) -> bool:
    """As upstream, only the plain media types route to built-in resources; `application/*` does not."""
    return any(clause.media_type == "*/*" or clause.media_type in ACCEPTED for clause in clauses)


def not_routable(many: bool) -> ApiError:
    available = ", ".join(ACCEPTED + STREAM_TYPES if many else ACCEPTED)
    return ApiError(406, "NotAcceptable", f"406: Not Acceptable\n\nAvailable representations: {available}", {})


def check_number(representation: Representation, resource: Resource, *, many: bool) -> None:
    """PartialObjectMetadata is for one object, PartialObjectMetadataList for several."""
    if many == (representation.as_ == PARTIAL_LIST):
        return
    what = "a list" if many else "not a list"
    message = f"you requested {representation.as_}, but the requested object is {what} ({go_type(resource, many)})"
    raise ApiError(406, "NotAcceptable", message)


def go_type(resource: Resource, many: bool) -> str:
    """`*core.ConfigMapList`"""
    if resource.custom:
        return "*unstructured.UnstructuredList" if many else "*unstructured.Unstructured"
    group = resource.group if resource.storage_group is None else resource.storage_group
    package = group.partition(".")[0] or "core"
    return f"*{package}.{resource.list_kind if many else resource.kind}"


# --- discovery ------------------------------------------------------------------------------------


def aggregated(accept: str) -> bool:
    """Whether the client accepts aggregated discovery.  Raises 406."""
    for clause in parse(accept):
        if not clause.covers(MEDIA_TYPES[JSON]):
            continue
        parameters = dict(clause.parameters)
        if not parameters.keys() & {"as", "g", "v"}:
            return False
        if (parameters.get("g"), parameters.get("v"), parameters.get("as")) == (
            "apidiscovery.k8s.io",
            "v2",
            "APIGroupDiscoveryList",
        ):
            return True
    raise not_acceptable(ACCEPTED)


def plain(accept: str) -> None:
    """Raises 406 if the client does not accept JSON."""
    if not any(clause.covers(MEDIA_TYPES[JSON]) for clause in parse(accept)):
        raise not_acceptable(ACCEPTED)
