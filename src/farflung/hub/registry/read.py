"""get and list, from stored bytes in memory."""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Awaitable
from dataclasses import dataclass

import msgspec
import orjson

from farflung.http.messages import Answer, Response
from farflung.hub.catalog import objects
from farflung.hub.catalog.objects import EVERY_CLUSTER, ObjectSelection, decode
from farflung.hub.registry import respond
from farflung.hub.registry.call import Call
from farflung.hub.registry.large_requests import compute_beside, is_long_read
from farflung.hub.registry.snapshots import SELECTED, selected
from farflung.hub.request.negotiation import Representation
from farflung.hub.request.options import ListRequestOptions, list_options, revision_of
from farflung.machinery.errors import ApiError, Obj, bad_request, expired
from farflung.machinery.selectors import FieldSelector, FieldTerm, parse_fields, parse_labels
from farflung.store.base import Compacted, Entry, FutureRevision, Page, Revision


def get(call: Call) -> Response | Awaitable[Answer]:
    representation = respond.negotiated(call, many=False)
    if call.request.query and (wanted := call.query.get("resourceVersion", "")):
        _check_not_future(revision_of(wanted), call)
    entry = call.found()
    if is_long_read(call, representation, entry):
        return compute_beside(call, get_here)
    return respond.with_entry(call, representation, entry)


def get_here(call: Call) -> Response:
    """In this turn of the event loop, or in this worker."""
    return respond.with_entry(call, respond.negotiated(call, many=False), call.found())


async def get_made(call: Call, made: Awaitable[Obj]) -> Response:
    """Get an object that is not stored.  It has no Table."""
    representation = Representation(respond.negotiated(call, many=False).media)
    value = objects.without_revision(objects.encode(call.resource, await made))
    return respond.with_entry(call, representation, Entry(call.key, value, 0))


def list_(call: Call) -> Answer | Awaitable[Answer]:
    """List from memory, unless the client requests a former revision."""
    representation = respond.negotiated(call, many=True)
    options = list_options(call.request.query)
    selection = selection_of(call, options)
    pinned = pin_of(options, call)
    if pinned is not None and pinned.revision != INCONSISTENT:
        return _list_past(call, representation, options, selection, pinned)
    page = present(call, selection, options, "" if pinned is None else pinned.after)
    if selection and len(page.entries) > SELECTED:
        return _list_selected(call, representation, page, selection, options)
    return listed(call, representation, select(page, selection, options))


async def _list_selected(
    call: Call, representation: Representation, page: Page, selection: ObjectSelection, options: ListRequestOptions
) -> Answer:
    """Select objects of a long page in turns with other requests."""
    matching = await selected(page.entries, selection, max(options.limit, 0))
    if page.revision < call.steady_since():  # meanwhile the view has other objects
        return await _answered(listed(call, representation, select(page, selection, options)))
    return await _answered(listed(call, representation, page_of(matching, page.revision, options)))


async def _answered(answer: Answer | Awaitable[Answer]) -> Answer:
    return await answer if isinstance(answer, Awaitable) else answer


async def _list_past(
    call: Call,
    representation: Representation,
    options: ListRequestOptions,
    selection: ObjectSelection,
    pinned: ListPosition,
) -> Answer:
    limit = 0 if selection else options.limit
    if pinned.revision < call.steady_since():
        raise _too_old(pinned, call)  # the view may have had other objects at that revision
    try:
        page = await call.store.list_at(call.prefix, pinned.revision, after=pinned.after, limit=limit)
    except Compacted:
        raise _too_old(pinned, call) from None
    except FutureRevision as error:
        raise too_large(error.requested, error.current) from None
    if selection:
        page = page_of(await selected(page.entries, selection, max(options.limit, 0)), page.revision, options)
    if pinned.revision < call.steady_since():
        raise _too_old(pinned, call)
    return await _answered(listed(call, representation, page))


def selection_of(call: Call, options: ListRequestOptions) -> ObjectSelection:
    labels = parse_labels(options.label_selector)
    fields = parse_fields(options.field_selector)
    if call.target.name:  # the deprecated path /watch/ of one object
        fields = FieldSelector((*fields.terms, FieldTerm("metadata.name", True, call.target.name)))
    for term in fields.terms:
        if term.field not in ("metadata.name", "metadata.namespace") and term.field not in call.resource.selectable:
            raise bad_request(call.resource.unselectable(term.field))
    read = call.kind.read if call.resource.custom else decode
    return ObjectSelection(call.resource, read, labels, fields, call.target.view, call.shows(), call.showed())


def only_key(call: Call, selection: ObjectSelection) -> str:
    """The key of the only object that can match; empty if several can."""
    name = selection.fields.exactly("metadata.name")
    if not name or "/" in name or (call.resource.namespaced and not call.target.namespace):
        return ""
    if call.target.cluster == EVERY_CLUSTER:
        return ""
    return call.key_of(name)


def present(call: Call, selection: ObjectSelection, options: ListRequestOptions, after: str) -> Page:
    """The current objects among which the selection is made.  An object that is selected by name is looked up."""
    only = only_key(call, selection)
    if only and not after:
        entry = call.store.get(only)
        return Page([] if entry is None else [entry], call.store.revision)
    return call.store.list(call.prefix, after=after, limit=0 if selection else options.limit)


def select(page: Page, selection: ObjectSelection, options: ListRequestOptions) -> Page:
    """The matching entries of a page, up to the limit."""
    if not selection:
        return page
    return page_of([entry for entry in page.entries if selection.matches(entry)], page.revision, options)


def page_of(matching: list[Entry], revision: Revision, options: ListRequestOptions) -> Page:
    limit = options.limit if options.limit > 0 else len(matching)
    after = matching[limit - 1].key if len(matching) > limit else ""
    return Page(matching[:limit], revision, after)


def listed(call: Call, representation: Representation, page: Page) -> Response | Awaitable[Response]:
    metadata: Obj = {"continue": ""} if call.resource.custom and not representation.as_ else {}
    metadata["resourceVersion"] = str(page.revision)
    if page.after:
        metadata["continue"] = encode_continue(page.revision, page.after[len(call.prefix) :])
        if page.remaining:
            metadata["remainingItemCount"] = page.remaining
    return respond.with_entries(call, representation, metadata, page.entries)


# --- where in the past ----------------------------------------------------------------------------

INCONSISTENT = -1  #: the revision of a continue token after compaction: continue with the current objects


@dataclass(frozen=True, slots=True)
class ListPosition:
    revision: Revision
    after: str = ""  #: a key


def pin_of(options: ListRequestOptions, call: Call) -> ListPosition | None:
    """The revision that a list must show; None: the current one."""
    if options.continue_:
        if options.resource_version not in ("", "0"):
            raise bad_request("specifying resource version is not allowed when using continue")
        revision, start = decode_continue(options.continue_)
        return ListPosition(revision, call.prefix + start)
    if not options.resource_version:
        return None
    try:
        revision = revision_of(options.resource_version)
    except ApiError as error:
        raise bad_request(f"invalid resource version: {error.message}") from None
    exact = options.match == "Exact" or (not options.match and options.limit > 0 and revision > 0)
    if exact:
        return ListPosition(revision)
    _check_not_future(revision, call)
    return None


def _check_not_future(revision: Revision, call: Call) -> None:
    if revision > call.store.revision:
        raise too_large(revision, call.store.revision)


def too_large(requested: Revision, current: Revision) -> ApiError:
    details = {
        "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        "retryAfterSeconds": 1,
    }
    message = f"Timeout: Too large resource version: {requested}, current: {current}"
    return ApiError(504, "Timeout", message, details, headers=[("Retry-After", "1")])


def _too_old(pinned: ListPosition, call: Call) -> ApiError:
    if not pinned.after:
        return expired("The resourceVersion for the provided list is too old.")
    message = (
        "The provided continue parameter is too old to display a consistent list result. You can start a new list"
        " without the continue parameter, or use the continue token in this response to retrieve the remainder of"
        " the results. Continuing with the provided token results in an inconsistent list - objects that were created,"
        " modified, or deleted between the time the first chunk was returned and now may show up in the list."
    )
    token = encode_continue(INCONSISTENT, pinned.after[len(call.prefix) :])
    return expired(message, metadata={"continue": token})


class _Token(msgspec.Struct):
    v: str = ""
    rv: int = 0
    start: str = ""


def encode_continue(revision: Revision, last: str) -> str:
    """A token for the objects after `last` (its key without the prefix) at a revision."""
    token = orjson.dumps({"v": "meta.k8s.io/v1", "rv": revision, "start": f"{last}\0"})
    return urlsafe_b64encode(token).rstrip(b"=").decode()


def decode_continue(text: str) -> tuple[Revision, str]:
    """The revision, and the key without the prefix after which to continue.  Raises 400."""
    problem = "invalid continue token: continue key is not valid: "
    try:
        raw = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError):
        raise bad_request(problem + "illegal base64 data") from None
    try:
        token = msgspec.json.decode(raw, type=_Token)
    except (msgspec.DecodeError, UnicodeDecodeError):
        shown = chr(raw[0]) if raw and raw[0] < 0x80 else f"\\u{raw[0] if raw else 0:04x}"
        raise bad_request(f"{problem}invalid character '{shown}' looking for beginning of value") from None
    if token.v != "meta.k8s.io/v1":
        raise bad_request(f"{problem}server does not recognize this encoded version {token.v}")
    if token.rv < INCONSISTENT or token.rv == 0:
        raise bad_request(f"{problem}incorrect encoded start resourceVersion (version meta.k8s.io/v1)")
    start = token.start.removesuffix("\0")
    if not start or ".." in start.split("/"):
        raise bad_request(f"{problem}encoded start key must be a non-empty path")
    return token.rv, start
