"""`matches`, `find` and `findAll`, in time that is linear in the text."""

from __future__ import annotations

from typing import Any, Final, Protocol

import re2

from farflung.machinery.cel.language.budget import Meter, Metered
from farflung.machinery.cel.language.declarations import Function, overload
from farflung.machinery.cel.language.values import EvaluationError
from farflung.machinery.cel.library import costs

_MEMORY: Final = 2 << 20  #: of one compiled pattern
_STEPS_A_UNIT: Final = 4  #: of RE2's slowest machine, which it seldom needs
_ONE_SEARCH: Final = 100
_ONE_INSTRUCTION: Final = 12  #: of compiling a pattern
_ONE_MATCH: Final = 640  #: the cost of returning one match


class Match(Protocol):
    def group(self, index: int = 0) -> str: ...


class Pattern(Protocol):
    programsize: int

    def search(self, text: str) -> Match | None: ...
    def finditer(self, text: str) -> Any: ...


def _options() -> Any:
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.max_mem = _MEMORY
    return options


_OPTIONS: Final = _options()

#: RE2's messages about patterns → Go's
_COMPLAINTS: Final = {
    "missing ]": "missing closing ]",
    "missing )": "missing closing )",
    "no argument for repetition operator": "missing argument to repetition operator",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid repetition size": "invalid repeat count",
    "trailing \\": "trailing backslash at end of expression",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid named capture group": "invalid named capture",
}


def compiled(pattern: str) -> Pattern:
    """Raises EvaluationError with Go's words.  RE2 keeps the newest."""
    try:
        compiled: Pattern = re2.compile(pattern, _OPTIONS)
    except re2.error as error:
        raise EvaluationError(f"error parsing regexp: {_in_words_of_go(error)}") from None
    except UnicodeEncodeError:
        raise EvaluationError(f"error parsing regexp: invalid UTF-8: `{ascii(pattern)[:100]}`") from None
    return compiled


def _in_words_of_go(error: Exception) -> str:
    text = error.args[0] if error.args else ""
    complaint, _, rest = (text.decode(errors="replace") if isinstance(text, bytes) else str(text)).partition(": ")
    return f"{_COMPLAINTS.get(complaint, complaint)}: `{rest}`"


def searched(meter: Meter, text: str, pattern: Pattern) -> bool:
    """Whether the pattern is anywhere in the text."""
    meter.work(_ONE_SEARCH + len(text) * pattern.programsize // _STEPS_A_UNIT)
    try:
        return pattern.search(text) is not None
    except UnicodeEncodeError:
        raise EvaluationError("invalid UTF-8 in string") from None


def found(meter: Meter, text: str, pattern: Pattern) -> str:
    meter.work(_ONE_SEARCH + len(text) * pattern.programsize // _STEPS_A_UNIT)
    match = pattern.search(text)
    return match.group() if match else ""


def all_found(meter: Meter, text: str, pattern: Pattern, most: int = -1) -> list[str]:
    """All matches that do not overlap, or the first so many."""
    if most == 0:
        return []
    meter.work(_ONE_SEARCH + len(text) * pattern.programsize // _STEPS_A_UNIT)
    matches: list[str] = []
    end = -1
    for match in pattern.finditer(text):
        meter.work(_ONE_MATCH)
        start, stop = match.span()
        if start == stop == end:
            continue  # Go allows no empty match directly after another one
        matches.append(match.group())
        end = stop
        if len(matches) == most:
            break
    return matches


def matches(meter: Meter, text: str, pattern: str) -> bool:
    return searched(meter, text, _compiled_now(meter, pattern))


def find(meter: Meter, text: str, pattern: str) -> str:
    return found(meter, text, _legal(meter, pattern))


def find_all(meter: Meter, text: str, pattern: str, most: int = -1) -> list[str]:
    return all_found(meter, text, _legal(meter, pattern), most)


def _compiled_now(meter: Meter, pattern: str) -> Pattern:
    """A pattern that may be another one in every call.  What cannot be compiled costs as much as its length."""
    meter.work(_ONE_INSTRUCTION * (20 + len(pattern)))
    found = compiled(pattern)
    meter.work(_ONE_INSTRUCTION * found.programsize)
    return found


def _legal(meter: Meter, pattern: str) -> Pattern:
    try:
        return _compiled_now(meter, pattern)
    except EvaluationError as error:
        raise EvaluationError(f"Illegal regex: {error}") from None


#: overload → its implementation for a literal pattern, which is compiled once
WITH_COMPILED: Final = {
    "matches_string": searched,
    "matches": searched,
    "string_find_string": found,
    "string_find_all_string": all_found,
    "string_find_all_string_int": all_found,
}

_MATCHES: Final = Metered(matches)

LIBRARY: Final[tuple[Function, ...]] = (
    overload("matches", "matches", "string, string -> bool", _MATCHES, costs.of_match),
    overload(".matches", "matches_string", "string, string -> bool", _MATCHES, costs.of_match),
    overload(".find", "string_find_string", "string, string -> string", Metered(find), costs.of_match),
    overload(".findAll", "string_find_all_string", "string, string -> list(string)", Metered(find_all), costs.of_match),
    overload(
        ".findAll",
        "string_find_all_string_int",
        "string, string, int -> list(string)",
        Metered(find_all),
        costs.of_match,
    ),
)
