"""Options of requests, from their queries.  Each distinct query is validated once and cached."""

from __future__ import annotations

import re
from dataclasses import dataclass

from farflung.hub.request.target import is_true, parse_query
from farflung.lib.memory import remember
from farflung.machinery.errors import (
    FieldError,
    bad_request,
    field_forbidden,
    go_quote,
    invalid,
    invalid_value,
    not_supported,
    required,
    too_long,
)

META = "meta.k8s.io"
FIELD_MANAGER_LIMIT = 128
FIELD_VALIDATIONS = ("", "Ignore", "Strict", "Warn")


@dataclass(frozen=True, slots=True)
class WriteOptions:
    dry_run: bool = False
    field_manager: str = ""
    field_validation: str = "Warn"
    force: bool = False


@remember(4096)
def write_options(kind: str, query: str, *, apply: bool = False) -> WriteOptions:
    """CreateOptions, UpdateOptions or PatchOptions (`apply`: of a server-side apply)."""
    values = parse_query(query)
    errors: list[FieldError] = []
    if "dryRun" in values and values["dryRun"] != "All":
        errors.append(not_supported("dryRun", [values["dryRun"]], ["All"]))
    manager = values.get("fieldManager", "")
    errors += field_manager_errors(manager)
    if apply and not manager:
        errors.append(required("fieldManager", "is required for apply patch"))
    force = values.get("force")
    if kind == "PatchOptions" and not apply and force is not None:
        errors.append(field_forbidden("force", "may not be specified for non-apply patch"))
    validation = values.get("fieldValidation", "")
    if validation not in FIELD_VALIDATIONS:
        errors.append(not_supported("fieldValidation", validation, FIELD_VALIDATIONS))
    if errors:
        raise invalid(META, kind, "", errors)
    return WriteOptions("dryRun" in values, manager, validation or "Warn", is_true(force))


def field_manager_errors(manager: str) -> list[FieldError]:
    errors = []
    if len(manager.encode()) > FIELD_MANAGER_LIMIT:
        errors.append(too_long("fieldManager", FIELD_MANAGER_LIMIT))
    for position, char in enumerate(manager):
        if not char.isprintable():
            why = f"invalid character U+{ord(char):04X} (at position {position})"
            errors.append(invalid_value("fieldManager", manager, why))
            break
    return errors


@dataclass(frozen=True, slots=True)
class ListRequestOptions:
    watch: bool = False
    label_selector: str = ""
    field_selector: str = ""
    limit: int = 0
    continue_: str = ""
    resource_version: str = ""
    match: str = ""
    timeout: int | None = None
    bookmarks: bool = False
    initial_events: bool | None = None


@remember(4096)
def list_options(query: str, *, watch: bool = False) -> ListRequestOptions:
    """`watch`: the path is a deprecated one with /watch/."""
    values = parse_query(query)
    initial = values.get("sendInitialEvents")
    options = ListRequestOptions(
        watch=watch or is_true(values.get("watch")),
        label_selector=values.get("labelSelector", ""),
        field_selector=values.get("fieldSelector", ""),
        limit=integer(values.get("limit", "0")),
        continue_=values.get("continue", ""),
        resource_version=values.get("resourceVersion", ""),
        match=values.get("resourceVersionMatch", ""),
        timeout=integer(values["timeoutSeconds"]) if values.get("timeoutSeconds") else None,
        bookmarks=is_true(values.get("allowWatchBookmarks")),
        initial_events=None if initial is None else is_true(initial),
    )
    errors = _watch_errors(options) if options.watch else _list_errors(options)
    if errors:
        raise invalid(META, "ListOptions", "", errors)
    return options


INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)


def integer(text: str) -> int:
    """A signed 64-bit number in Go's syntax.  An empty text is 0."""
    problem = "invalid syntax"
    if not text or INTEGER.fullmatch(text):
        number = int(text or "0") if len(text) < 30 else 2**63
        if -(2**63) <= number < 2**63:
            return number
        problem = "value out of range"
    raise bad_request(f"strconv.ParseInt: parsing {go_quote(text)}: {problem}")


MATCH = "resourceVersionMatch"


def _list_errors(options: ListRequestOptions) -> list[FieldError]:
    errors = []
    if options.initial_events is not None:
        errors.append(field_forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    if not options.match:
        return errors
    if not options.resource_version:
        errors.append(field_forbidden(MATCH, f"{MATCH} is forbidden unless resourceVersion is provided"))
    if options.continue_:
        errors.append(field_forbidden(MATCH, f"{MATCH} is forbidden when continue is provided"))
    if options.match not in ("Exact", "NotOlderThan"):
        errors.append(not_supported(MATCH, options.match, ("Exact", "NotOlderThan", "")))
    if options.match == "Exact" and options.resource_version == "0":
        errors.append(field_forbidden(MATCH, f'{MATCH} "exact" is forbidden for resourceVersion "0"'))
    return errors


def _watch_errors(options: ListRequestOptions) -> list[FieldError]:
    errors = []
    if options.continue_:
        errors.append(field_forbidden(MATCH, f"{MATCH} is forbidden when continue is provided"))
    if options.initial_events is None:
        if options.match:
            errors.append(
                field_forbidden(MATCH, f"{MATCH} is forbidden for watch unless sendInitialEvents is provided")
            )
        return errors
    if options.match != "NotOlderThan":
        errors.append(field_forbidden(MATCH, f"sendInitialEvents requires setting {MATCH} to NotOlderThan"))
        if options.match:
            errors.append(not_supported(MATCH, options.match, ["NotOlderThan"]))
    return errors


def revision_of(text: str) -> int:
    """A resourceVersion parameter as a number."""
    if text.isascii() and text.isdigit() and len(text) < 20:
        return int(text)
    why = (
        f"resourceVersion: Invalid value: {go_quote(text)}: strconv.ParseUint: parsing {go_quote(text)}: invalid syntax"
    )
    raise bad_request(why)
