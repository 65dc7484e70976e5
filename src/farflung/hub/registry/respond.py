"""Responses: stored bytes in the representation that the client accepts.

JSON is spliced from stored bytes.  Other representations (Table, PartialObjectMetadata, YAML, protobuf, another version
of the kind) decode the object first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final, cast

import orjson
import yaml

from farflung.apis import wire
from farflung.http.messages import ComputedPiece, Piece, Request, Response, StreamedBody
from farflung.hub.catalog import objects
from farflung.hub.catalog.kinds import Kind, made
from farflung.hub.registry.call import Call
from farflung.hub.registry.snapshots import LARGE, Snapshot, portions
from farflung.hub.request import media_types
from farflung.hub.request.negotiation import PROTOBUF, YAML, Representation, negotiate
from farflung.machinery import table
from farflung.machinery.codec import protobuf
from farflung.machinery.errors import ApiError, Obj
from farflung.store.base import Entry, Revision

KEPT: Final = 1024 * 1024  #: bytes of an encoded list
AT_ONCE: Final = 128 * 1024  #: bytes of stored values that are decoded and encoded in a turn of the event loop
#: how much longer it takes than as JSON
SLOWNESS: Final = {YAML: 8, PROTOBUF: 3}
COLUMNS: Final = 4  #: of a custom resource, which take as long as the rest
LIST_END: Final = b"]}"  #: of a list as JSON
Dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  #: the faster one, if libyaml is installed


def negotiated(call: Call, *, many: bool, watch: bool = False) -> Representation:
    """The representation that the client accepts, determined before anything is written.  Raises 406."""
    accepted = call.request.headers.get("accept", "")
    if accepted in (media_types.JSON, "*/*", ""):
        return PLAIN
    representation = negotiate(accepted, call.resource, many=many, watch=watch)
    if representation.as_ == "Table":
        table.included(call.query.get("includeObject", ""))
    return representation


PLAIN = Representation()  #: JSON, as stored


def json_response(status: int, body: Obj, headers: Sequence[tuple[str, str]] = ()) -> Response:
    return Response(status, orjson.dumps(body), headers=headers)


def with_error(request: Request, error: ApiError) -> Response:
    if "protobuf" in request.headers.get("accept", "") and "json" not in request.headers["accept"]:
        body = protobuf.encode(error.status(), STATUS, wire.MESSAGES)
        return Response(error.code, body, media_types.PROTOBUF, error.headers)
    return json_response(error.code, error.status(), error.headers)


STATUS = "io.k8s.apimachinery.pkg.apis.meta.v1.Status"


def with_entry(
    call: Call, representation: Representation, entry: Entry, *, status: int = 200, warnings: Sequence[str] = ()
) -> Response:
    """Respond with one object.  Each warning is a header."""
    headers = warning_headers(call, warnings)
    if representation is PLAIN:
        return Response(status, call.kind.document(entry), headers=headers)
    return Response(status, presenter_of(call, representation).whole(entry), representation.content_type, headers)


def warning_headers(call: Call, warnings: Sequence[str] = ()) -> list[tuple[str, str]]:
    """A header for each warning; the first one is that of a deprecated resource."""
    deprecated = call.resource.deprecated
    if not warnings and not deprecated:
        return []
    return headers_of([deprecated, *warnings] if deprecated else warnings)


def headers_of(warnings: Sequence[str]) -> list[tuple[str, str]]:
    return [("Warning", f"299 - {quoted(text)}") for text in shortened(warnings)]


def warned(error: ApiError, warnings: Sequence[str]) -> ApiError:
    """Add warnings to an error."""
    if warnings:
        error.headers = [*headers_of(warnings), *error.headers]
    return error


WARNINGS_LENGTH: Final = 4096  #: characters of all warnings, before each is truncated
WARNING_LENGTH: Final = 256


def shortened(texts: Sequence[str]) -> Sequence[str]:
    """Each warning once.  If they are too long together, the first ones are truncated and the rest is omitted."""
    if sum(map(len, texts)) <= WARNINGS_LENGTH:
        return list(dict.fromkeys(texts))
    kept: list[str] = []
    for text in dict.fromkeys(texts):
        if sum(map(len, kept)) >= WARNINGS_LENGTH:
            break
        kept.append(text[:WARNING_LENGTH])
    return kept


def quoted(text: str) -> str:
    """A quoted string of an HTTP header."""
    safe = "".join(char if char.isprintable() else " " for char in text)
    return '"' + safe.replace("\\", "\\\\").replace('"', '\\"') + '"'


def with_entries(
    call: Call, representation: Representation, metadata: Obj, entries: Sequence[Entry]
) -> Response | Awaitable[Response]:
    """Respond with a list.  A large one is encoded while its client reads it."""
    presenter = presenter_of(call, representation)
    snapshot = Snapshot(call.store, call.prefix, entries)
    answer = Response(200, b"", representation.content_type, warning_headers(call))
    if representation.media == PROTOBUF:
        return _with_protobuf(answer, presenter, metadata, snapshot)
    if snapshot.size > LARGE:
        pieces = snapshot.encoded(partial(presenter.pieces, metadata, entries))
        answer.body = StreamedBody(pieces, presenter.size(metadata, snapshot))
        return answer
    if presenter.is_quick(entries):
        answer.body = b"".join(cast(Iterator[Piece], presenter.pieces(metadata, entries)))
        return answer
    return _in_turns(answer, presenter.pieces(metadata, entries))


async def _in_turns(answer: Response, pieces: Iterator[Piece | ComputedPiece]) -> Response:
    """Encode a list that is not large but expensive.  Between its pieces the hub serves other requests."""
    encoded: list[Piece] = []
    for piece in pieces:
        if isinstance(piece, asyncio.Future):
            encoded.append(await piece)
        else:
            encoded.append(piece)
            await asyncio.sleep(0)
    answer.body = b"".join(encoded)
    return answer


async def _with_protobuf(answer: Response, presenter: Presenter, metadata: Obj, snapshot: Snapshot) -> Response:
    """Protobuf begins with the size of the list, so a list that is too large to be kept is encoded twice."""
    items: list[bytes] = []
    size = 0
    for portion in presenter.portions(snapshot.entries):
        if size:
            await asyncio.sleep(0)
        piece = presenter.produced(portion)
        encoded = await piece if isinstance(piece, asyncio.Future) else piece
        size += len(encoded)
        if size <= KEPT:
            items.append(encoded)
        else:
            items.clear()
    start, end = presenter.protobuf_frame(metadata, size)
    if size <= KEPT:
        answer.body = b"".join((start, *items, end))
        return answer

    def pieces() -> Iterator[Piece | ComputedPiece]:
        yield start
        for portion in presenter.portions(snapshot.entries):
            yield presenter.produced(portion)
        yield end

    answer.body = StreamedBody(snapshot.encoded(pieces), len(start) + size + len(end))
    return answer


def presenter_of(call: Call, representation: Representation) -> Presenter:
    include = table.included(call.query.get("includeObject", "")) if representation.as_ == "Table" else ""
    return Presenter(call.kind, representation, include, call.tools.clock, call.compute_patiently)


Encode = Callable[["Presenter", Entry], bytes]
Compute = Callable[..., Awaitable[bytes]]  #: calls a function in a worker process


def encode_in_worker(
    encode: Encode,
    make: Callable[[], Kind],
    shown: tuple[Representation, str, datetime],
    entry: tuple[str, bytes, Revision],
) -> bytes:
    """`shown`: the representation, the object in a row of a Table, and the time."""
    representation, include, now = shown
    return encode(Presenter(made(make), representation, include, lambda: now), Entry(*entry))


class Presenter:
    """Encodes the objects of one resource in one representation."""

    __slots__ = ("_clock", "_compute", "_include", "_kind", "_limit", "_plain", "_printer", "_representation")

    def __init__(
        self,
        kind: Kind,
        representation: Representation,
        include: str,
        clock: Callable[[], datetime],
        compute: Compute | None = None,
    ) -> None:
        """`include`: the object in a row of a Table; `compute`: None: in a worker process."""
        self._kind = kind
        self._representation = representation
        self._include = include
        self._clock = clock
        self._compute = compute
        self._plain = not representation.as_ and representation.media == "json"
        self._printer = kind.resource.printer
        self._limit = LARGE
        if not self._plain or kind.conversion is not None:
            slowness = row_weight(kind) if self.has_columns else SLOWNESS.get(representation.media, 1)
            self._limit = AT_ONCE // slowness

    @property
    def is_plain(self) -> bool:
        """Whether objects are sent as they are stored."""
        return self._plain and self._kind.conversion is None

    @property
    def has_columns(self) -> bool:
        return self._representation.as_ == "Table"

    def whole(self, entry: Entry) -> bytes:
        """The object as a whole body."""
        if self._plain:
            return self._kind.document(entry)
        return self._document(self._shaped(entry))

    def encoded(self, entry: Entry) -> bytes:
        """The object as JSON inside a watch event; a Table without its column definitions."""
        if self._plain:
            return self._kind.document(entry)
        return orjson.dumps(self._shaped(entry, headers=False))

    def is_quick(self, entries: Sequence[Entry]) -> bool:
        """Whether these objects, which are not large, are encoded in one turn."""
        return self._can_splice(entries) or (
            len(entries) <= self._most and sum([len(entry.value) for entry in entries]) <= self._limit
        )

    def portions(self, entries: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
        """Objects that are encoded in a few milliseconds, or a larger one."""
        return portions(entries, self._most, self._limit)

    @property
    def _most(self) -> int:
        return 1024 if self.is_plain else 128

    def is_heavy(self, entries: Sequence[Entry]) -> bool:
        """Whether a portion is one object that takes longer than a turn."""
        return len(entries) == 1 and len(entries[0].value) > self._limit and not self._can_splice(entries)

    def computed(self, encode: Encode, entry: Entry) -> ComputedPiece:
        """A heavy object, encoded by a worker process."""
        assert self._compute is not None, "a worker computes everything itself"
        shown = self._representation, self._include, self._clock()
        stored = entry.key, entry.value, entry.revision
        return asyncio.ensure_future(self._compute(encode_in_worker, encode, self._kind.made_anew, shown, stored))

    def _can_splice(self, entries: Sequence[Entry]) -> bool:
        """Whether the stored bytes are the items of the list as they are."""
        return self._plain and (self._kind.conversion is None or all(map(self._kind.is_plain, entries)))

    def size(self, metadata: Obj, snapshot: Snapshot) -> int | None:
        """The bytes of a list; None if it has to be encoded to know them."""
        entries = snapshot.entries
        if not entries or not self._can_splice(entries):
            return None
        head, skip, separator = self._splices(metadata)
        return len(head) - 1 + snapshot.size + len(entries) * (len(separator) - skip) + len(LIST_END)

    def pieces(self, metadata: Obj, entries: Sequence[Entry]) -> Iterator[Piece | ComputedPiece]:
        """A list as JSON or YAML."""
        if self._can_splice(entries):
            yield from self._spliced(metadata, entries)
            return
        start, end = self._list_frame(metadata, is_empty=not entries)
        yield start
        for number, portion in enumerate(self.portions(entries)):
            if number and self._representation.media != YAML:
                yield b","
            yield self.produced(portion)
        yield end

    def _splices(self, metadata: Obj) -> tuple[bytes, int, bytes]:
        """The start of a list of stored bytes, how many of each are left out, and what is between them."""
        resource = self._kind.resource
        head = objects.list_head(resource, metadata)
        return (head, 0, b",") if resource.custom else (head, len(objects.type_head(resource)), b",{")

    def _spliced(self, metadata: Obj, entries: Sequence[Entry]) -> Iterator[Piece]:
        head, skip, separator = self._splices(metadata)
        yield head
        for number, portion in enumerate(self.portions(entries)):
            first = separator if number else separator[1:]
            if len(portion) == 1:
                yield first
                yield memoryview(portion[0].value)[skip:]
            else:
                values: list[Piece] = [memoryview(entry.value)[skip:] for entry in portion]
                values[0] = first + bytes(values[0])
                yield separator.join(values)
        yield LIST_END

    def produced(self, portion: Sequence[Entry]) -> bytes | ComputedPiece:
        """Some encoded items of a list."""
        return self.computed(Presenter.item, portion[0]) if self.is_heavy(portion) else self.items(portion)

    def item(self, entry: Entry) -> bytes:
        return self.items([entry])

    def items(self, entries: Sequence[Entry]) -> bytes:
        """Some encoded items of a list."""
        items = [self._item(self._kind.read(entry)) for entry in entries]
        match self._representation.media:
            case "yaml":
                return dumped_yaml(items)
            case "protobuf":
                return protobuf.encode_items(items, self._kind.resource.definition, wire.MESSAGES)
        return orjson.dumps(items)[1:-1]

    def protobuf_frame(self, metadata: Obj, size: int) -> tuple[bytes, bytes]:
        """Start and end of a list whose encoded items have a size."""
        return protobuf.list_frame(self._empty_list(metadata), self._kind.resource.definition, size, wire.MESSAGES)

    def _item(self, obj: Obj) -> Obj:
        match self._representation.as_:
            case "Table":
                return self._row(obj)
            case "PartialObjectMetadataList":
                return table.partial_metadata(obj, self._representation.version)
        if not self._kind.resource.custom:
            del obj["kind"], obj["apiVersion"]
        return obj

    def _list_frame(self, metadata: Obj, *, is_empty: bool) -> tuple[bytes, bytes]:
        """What is before and after the items of a list, as JSON or YAML."""
        shell = self._empty_list(metadata)
        if self._representation.media == YAML:
            *_, field = shell
            start, empty, end = dumped_yaml(shell).partition(f"\n{field}: []\n".encode())
            return start + (empty if is_empty else f"\n{field}:\n".encode()), end
        encoded = orjson.dumps(shell)
        return encoded[: -len(LIST_END)], LIST_END

    def _empty_list(self, metadata: Obj) -> Obj:
        """The list without items; the field of the items is the last one."""
        version = self._representation.version
        match self._representation.as_:
            case "Table":
                return table.table(self._printer, (), metadata, version)
            case "PartialObjectMetadataList":
                return table.partial_metadata_list((), metadata, version)
        resource = self._kind.resource
        return {"kind": resource.list_kind, "apiVersion": resource.api_version, "metadata": metadata, "items": []}

    def bookmark(self, revision: Revision, annotations: dict[str, str] | None) -> bytes:
        """A BOOKMARK object, which has only the revision that a watch has reached."""
        resource = self._kind.resource
        metadata: Obj = {"resourceVersion": str(revision)}
        if annotations:
            metadata["annotations"] = annotations
        obj = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata}
        return orjson.dumps(self._represented(obj, headers=False))

    def with_columns(self, event: bytes) -> bytes:
        """The first event of a watch, with the column definitions of a Table."""
        columns = table.encoded_columns(self._printer.columns)
        return event.replace(b'"columnDefinitions":null', b'"columnDefinitions":' + columns, 1)

    def _shaped(self, entry: Entry, *, headers: bool = True) -> Obj:
        return self._represented(self._kind.read(entry), headers=headers)

    def _represented(self, obj: Obj, *, headers: bool) -> Obj:
        version = self._representation.version
        match self._representation.as_:
            case "Table":
                metadata = {"resourceVersion": obj["metadata"].get("resourceVersion", "")}
                return table.table(self._printer, [self._row(obj)], metadata, version, headers=headers)
            case "PartialObjectMetadata" | "PartialObjectMetadataList":
                return table.partial_metadata(obj, version)
        return obj

    def _row(self, obj: Obj) -> Obj:
        now = self._clock()
        return table.row(self._printer, obj, now, self._include, self._representation.version)

    def _document(self, obj: Any) -> bytes:
        match self._representation.media:
            case "yaml":
                return dumped_yaml(obj)
            case "protobuf":
                return protobuf.encode(obj, self._kind.resource.definition, wire.MESSAGES)
        return orjson.dumps(obj)


def row_weight(kind: Kind) -> int:
    """How many times longer the row of a Table takes than the object as JSON."""
    return 1 + len(kind.resource.printer.columns) // COLUMNS if kind.resource.custom else 1


def dumped_yaml(value: Any) -> bytes:
    return yaml.dump(orjson.loads(orjson.dumps(value)), Dumper=Dumper).encode()
