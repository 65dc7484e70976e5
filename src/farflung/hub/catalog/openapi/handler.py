"""OpenAPI documents.

    /openapi/v2             Swagger 2.0 of all groups, as JSON or protobuf
    /openapi/v3             the list of version 3 documents
    /openapi/v3/apis/apps/v1   one of them, as JSON or protobuf

A document is made at the first request, and cached in compressed form.  Catalogues with equal groups share their
documents (`DocumentCache`).  A worker process makes large documents.
"""

from __future__ import annotations

import gzip
import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from email.utils import formatdate
from functools import partial
from io import BytesIO
from typing import Any, Final, Protocol
from urllib.parse import parse_qs, quote
from weakref import WeakValueDictionary

import orjson

from farflung.apis.builtin.catalog import Catalog, Path
from farflung.apis.resource import Resource
from farflung.http.messages import Holder, Request, Response, StreamedBody
from farflung.hub.catalog.openapi import documents, gnostic
from farflung.hub.catalog.openapi.operations import PathOperations
from farflung.hub.catalog.openapi.schemas import Own
from farflung.hub.request import negotiation
from farflung.hub.request.media_types import JSON
from farflung.machinery.errors import Obj, method_not_allowed, not_acceptable
from farflung.machinery.turns import ALLOWANCE, TURN_WORK, LongWork, spend

PLAIN: Final = "text/plain; charset=utf-8"  #: the content type of the list
PROTOBUF_V2: Final = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
PROTOBUF_V3: Final = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf"

#: requested media type → media type of the response
OFFERED_V2: Final = {
    JSON: JSON,
    PROTOBUF_V2.replace(".v1", "@v1"): PROTOBUF_V2,
    PROTOBUF_V2: PROTOBUF_V2,
}
OFFERED_V3: Final = {
    JSON: JSON,
    PROTOBUF_V3.replace(".v1", "@v1"): PROTOBUF_V3,
    PROTOBUF_V3: PROTOBUF_V3,
}

LARGE: Final = 128 * 1024  #: bytes of the definitions in a document that another process makes
FAST: Final = 1  #: compression level: compressing blocks the event loop
PIECE: Final = 64 * 1024  #: bytes that are decompressed at once for a client
YEAR: Final = 365 * 24 * 3600

#: a resource → its own definitions, by name
Brought = Callable[[Resource], Own]


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class Document:
    """Encoded once.  `tag`: the ETag."""

    compressed: bytes
    tag: str
    resources: Sequence[Resource]  #: described by the document
    definitions: frozenset[str] = frozenset()  #: names of its definitions, if other documents extend it
    base: Document | None = None  #: the document that this one extends; kept for the next one


Key = tuple[str, str, tuple[int, ...]]  #: name and media type of a document, identities of the resources in it


class DocumentCache:
    """Documents by their content, as long as a catalogue uses them."""

    __slots__ = ("_documents",)

    def __init__(self) -> None:
        self._documents: WeakValueDictionary[Key, Document] = WeakValueDictionary()

    def get(self, name: str, media: str, resources: Sequence[Resource], make: Callable[[], Document]) -> Document:
        key = (name, media, tuple(map(id, resources)))  # the document keeps them alive
        document = self._documents.get(key)
        if document is None:
            document = self._documents[key] = make()
        return document

    def keep(self, name: str, media: str, document: Document) -> Document:
        self._documents[name, media, tuple(map(id, document.resources))] = document
        return document


def nothing(_: Resource) -> Own:
    return {}


class Source(Protocol):
    """The definition of custom resources."""

    @property
    def resources(self) -> Sequence[Resource]: ...

    @property
    def remake(self) -> Callable[[], Source]:
        """Makes it in another process."""

    @property
    def size(self) -> int:
        """Bytes."""

    def openapi(self, version: str) -> Own:
        """The OpenAPI definitions of a version, by name."""


Encoded = tuple[bytes, str]  #: compressed, and its ETag


class OpenAPI:
    """The documents of one catalogue.  `brought`: gives the definitions that are not built in; `sources`: where they
    come from."""

    __slots__ = ("_brought", "_kept", "_names", "_shelf", "_sources", "catalog")

    def __init__(
        self,
        catalog: Catalog,
        brought: Brought = nothing,
        shelf: DocumentCache | None = None,
        sources: Iterable[Source] = (),
    ) -> None:
        self._sources = {id(resource): source for source in sources for resource in source.resources}
        self.catalog = catalog
        self._brought = brought
        self._shelf = shelf or DocumentCache()
        self._kept: dict[tuple[str, str], Document] = {}
        self._names = documents.document_names(catalog)

    def answer(self, request: Request, path: str) -> Response | None:
        """The document at a path; None if there is none.  Raises ApiError."""
        path = path.removesuffix("/")
        if path != "/openapi/v2" and path != "/openapi/v3" and not path.startswith("/openapi/v3/"):
            return None
        name = path.removeprefix("/openapi/v3/")
        if name != path and name not in self._names:
            return None
        if request.method not in ("GET", "HEAD"):
            raise method_not_allowed()
        prefix = prefix_of(request.path, path)
        if path == "/openapi/v2":
            return self._all(request)
        if path == "/openapi/v3":
            return self._index(request, prefix)
        return self._one(request, name, prefix)

    def _all(self, request: Request) -> Response:
        media = chosen(request, OFFERED_V2)
        return respond(request, self._document("", media), media)

    def _index(self, request: Request, prefix: str) -> Response:
        paths = {name: {"serverRelativeURL": self._url(prefix, name)} for name in self._names}
        return Response(200, orjson.dumps({"paths": paths}), PLAIN)

    def _one(self, request: Request, name: str, prefix: str) -> Response:
        media = chosen(request, OFFERED_V3)
        asked = parse_qs(request.query).get("hash")
        tag = self._document(name, JSON).tag
        if asked is None:
            return respond(request, self._document(name, media), media, tag)
        if asked[0] != tag:
            return Response(301, b"", PLAIN, [("Location", self._url(prefix, name))])
        forever = [("Cache-Control", "public, immutable"), ("Expires", formatdate(time.time() + YEAR, usegmt=True))]
        return respond(request, self._document(name, media), media, tag, forever)

    def _url(self, prefix: str, name: str) -> str:
        """Raises TurnOver if the current task has an allowance, and made another document in this turn."""
        if (name, JSON) not in self._kept:
            spend(TURN_WORK)
        return f"{prefix}/openapi/v3/{quote(name)}?hash={self._document(name, JSON).tag}"

    def _document(self, name: str, media: str) -> Document:
        """A version 3 document by its name; without a name the version 2 document."""
        document = self._kept.get((name, media))
        if document is None:
            resources = documents.resources_of(self.catalog, name) if name else tuple(self.catalog)
            document = self._shelf.get(name, media, resources, lambda: self._made(name, media, resources))
            self._kept[name, media] = document
        return document

    def _made(self, name: str, media: str, resources: Sequence[Resource]) -> Document:
        """Raises LongWork if the current task has an allowance, and TurnOver."""
        if not name:
            return self._everything(media, resources)
        if ALLOWANCE.get() is not None and self._size(resources) > LARGE:
            raise self._long(name, media, Document(b"", "", resources), group_document, self._remade(resources), name)
        return Document(*self.encoded(name, media, resources), resources)

    def encoded(self, name: str, media: str, resources: Sequence[Resource]) -> Encoded:
        """A version 3 document."""
        content = documents.openapi(documents.paths_in(name, resources), self._own(resources))
        return compressed(encode(content, media))

    def _everything(self, media: str, resources: Sequence[Resource]) -> Document:
        """The built-in part is the same in all catalogues, so this extends a copy of it."""
        built_in = tuple(resource for resource in resources if not resource.custom)
        if len(built_in) == len(resources):
            return self._built_in(media, resources)
        shared = OpenAPI(Catalog(built_in), self._brought, self._shelf)
        base = shared._document("", media)
        custom = tuple(resource for resource in resources if resource.custom)
        extensible = base.compressed, base.definitions, frozenset(shared._names)
        if ALLOWANCE.get() is not None and all(id(one) in self._sources for one in custom):
            whole = Document(b"", "", resources, base=base)
            raise self._long("", media, whole, extended_document, self._remade(custom), extensible)
        return Document(*self.extending(media, custom, extensible), resources, base=base)

    def _built_in(self, media: str, resources: Sequence[Resource]) -> Document:
        if media != JSON and ALLOWANCE.get() is not None:
            plain = self._document("", JSON)
            whole = Document(b"", "", resources, plain.definitions)
            raise self._long("", media, whole, converted_document, plain.compressed)
        content = documents.swagger(self._paths(self._names, resources), self._own(resources))
        return Document(*compressed(encode(content, media)), resources, frozenset(content["definitions"]))

    def extending(self, media: str, custom: Sequence[Resource], base: Base) -> Encoded:
        """The version 2 document of the custom resources and those of a base."""
        compressed_base, definitions, known = base
        paths = (path for path in self._paths(self._names, custom) if path.path.strip("/") not in known)
        part = documents.swagger_part(paths, self._own(custom), definitions)
        return compressed(extended(gzip.decompress(compressed_base), part, media))

    def _long(self, name: str, media: str, document: Document, make: Callable[..., Encoded], *args: Any) -> LongWork:
        """A document that another process makes.  `document`: without its bytes."""

        def keep(encoded: Encoded) -> Document:
            return self._shelf.keep(name, media, replace(document, compressed=encoded[0], tag=encoded[1]))

        return LongWork(partial(make, *args, media), keep)

    def _size(self, resources: Sequence[Resource]) -> int:
        """Bytes of the definitions of custom resources; 0 unless they can be made in another process."""
        sources = [self._sources.get(id(one)) for one in resources]
        return sum(one.size for one in dict.fromkeys(sources) if one is not None) if all(sources) else 0

    def _remade(self, resources: Sequence[Resource]) -> Remade:
        """What makes resources in another process."""
        sources = dict.fromkeys(self._sources[id(one)] for one in resources)
        paths = frozenset((one.group, one.version, one.plural) for one in resources)
        return [source.remake for source in sources], paths

    def _paths(self, names: Iterable[str], resources: Sequence[Resource]) -> Iterator[PathOperations]:
        wanted = frozenset(map(id, resources))
        for name in names:
            there = documents.resources_of(self.catalog, name)
            yield from documents.paths_in(name, [one for one in there if id(one) in wanted])

    def _own(self, resources: Iterable[Resource]) -> Own:
        return {key: value for resource in resources for key, value in self._brought(resource).items()}


def compressed(encoded: bytes) -> Encoded:
    return gzip.compress(encoded, FAST, mtime=0), hashlib.sha256(encoded).hexdigest().upper()


# --- in another process ---------------------------------------------------------------------------

#: of a version 2 document that others extend: compressed, the names of its definitions, and the paths of its documents
Base = tuple[bytes, frozenset[str], frozenset[str]]
Remade = tuple[Sequence[Callable[[], Source]], frozenset[Path]]  #: definitions, and their resources to be described


def group_document(remade: Remade, name: str, media: str) -> Encoded:
    catalog = remade_catalog(remade)
    return catalog.encoded(name, media, documents.resources_of(catalog.catalog, name))


def extended_document(remade: Remade, base: Base, media: str) -> Encoded:
    openapi = remade_catalog(remade)
    return openapi.extending(media, tuple(openapi.catalog), base)


def converted_document(compressed_json: bytes, media: str) -> Encoded:
    return compressed(encode(orjson.loads(gzip.decompress(compressed_json)), media))


def remade_catalog(remade: Remade) -> OpenAPI:
    makes, paths = remade
    brought: dict[int, Own] = {}
    resources = []
    for source in (make() for make in makes):
        for one in source.resources:
            if (one.group, one.version, one.plural) in paths:
                resources.append(one)
                brought[id(one)] = source.openapi(one.version)
    return OpenAPI(Catalog(resources), lambda resource: brought[id(resource)])


# --- encoding -------------------------------------------------------------------------------------


def extended(base: bytes, part: Obj, media: str) -> bytes:
    """A version 2 document with more paths and definitions."""
    if media != JSON:
        return base + encode(part, media)  # concatenated messages merge
    for key in ("paths", "definitions"):
        before, start, after = base.partition(b'"%s":{' % key.encode())  # the first match is the document's own
        more = orjson.dumps(part[key])[1:-1]
        base = b"".join((before, start, more, b"," if more and not after.startswith(b"}") else b"", after))
    return base


V2_ENCODER: Final = gnostic.Encoder(gnostic.V2)
V3_ENCODER: Final = gnostic.Encoder(gnostic.V3)


def encode(content: Obj, media: str) -> bytes:
    if media == JSON:
        return orjson.dumps(content)
    return (V2_ENCODER if media == PROTOBUF_V2 else V3_ENCODER).encode("Document", content)


def chosen(request: Request, offered: Mapping[str, str]) -> str:
    """The media type of the response.  Raises 406."""
    for clause in negotiation.parse(request.headers.get("accept", "")):
        for asked, answered in offered.items():
            if clause.covers(asked):
                return answered
    raise not_acceptable(tuple(dict.fromkeys(offered.values())))


def respond(
    request: Request, document: Document, media: str, tag: str = "", caching: Sequence[tuple[str, str]] = ()
) -> Response:
    """A document, compressed if the client accepts it; 304 if the client has it."""
    quoted = f'"{tag or document.tag}"'
    headers = [("ETag", quoted), ("Vary", "Accept"), *caching]
    if has_it(request.headers.get("if-none-match", ""), quoted):
        return Response(304, b"", media, headers)
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(200, document.compressed, media, [*headers, ("Content-Encoding", "gzip")])
    return Response(200, decompressed(document.compressed), media, headers)


def decompressed(compressed: bytes) -> bytes | StreamedBody:
    size = int.from_bytes(compressed[-4:], "little")  # the end of the format
    if size <= PIECE:
        return gzip.decompress(compressed)

    def pieces(holder: Holder) -> Iterator[bytes]:
        with gzip.open(BytesIO(compressed)) as document:
            while piece := document.read(PIECE):
                yield piece

    return StreamedBody(pieces, size)


def has_it(header: str, quoted: str) -> bool:
    """Whether an If-None-Match header has a tag."""
    return any(one.strip().removeprefix("W/") in (quoted, "*") for one in header.split(","))


def prefix_of(whole: str, path: str) -> str:
    """`/clusters/root` of `/clusters/root/openapi/v3`."""
    return whole.removesuffix("/").removesuffix(path) if whole.startswith("/clusters/") else ""
