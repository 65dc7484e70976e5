"""`semver('1.2.3')`: semantic versions and their order."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Final

from farflung.machinery.cel.language.declarations import Function, overload
from farflung.machinery.cel.language.types import SEMVER as SEMVER_TYPE
from farflung.machinery.cel.language.values import MAX_UINT, EvaluationError
from farflung.machinery.cel.library import costs
from farflung.machinery.errors import go_quote

_DIGITS: Final = re.compile("[0-9]+", re.ASCII)
_IDENTIFIER: Final = re.compile("[0-9A-Za-z-]+", re.ASCII)
_MAX_TEXT: Final = 1000

#: an identifier of a pre-release: numbers come first, by value; then texts
Identifier = tuple[int, int, str]


@dataclass(frozen=True, slots=True)
class Semver:
    major: int
    minor: int
    patch: int
    release: bool  #: whether it is no pre-release; pre-releases come before
    identifiers: tuple[Identifier, ...]
    build: tuple[str, ...]

    TYPE_NAME: ClassVar[str] = SEMVER_TYPE.name

    @property
    def order(self) -> tuple[int, int, int, bool, tuple[Identifier, ...]]:
        return self.major, self.minor, self.patch, self.release, self.identifiers

    def __eq__(self, other: object) -> bool:
        return type(other) is Semver and self.order == other.order

    def __hash__(self) -> int:
        return hash(self.order)


@lru_cache(maxsize=1024)
def parse(text: str) -> Semver:
    """Raises EvaluationError."""
    if not text:
        raise EvaluationError("Version string empty")
    parts = text[:_MAX_TEXT].split(".", 2)
    if len(parts) != 3 or len(text) > _MAX_TEXT:
        raise EvaluationError("No Major.Minor.Patch elements found")
    rest, plus, build = parts[2].partition("+")
    patch, dash, release = rest.partition("-")
    major_number, minor_number = _number("Major", parts[0]), _number("Minor", parts[1])
    identifiers = tuple(map(_identifier, release.split("."))) if dash else ()
    builds = tuple(build.split(".")) if plus else ()
    patch_number = _number("Patch", patch)
    for name in builds:
        if not name:
            raise EvaluationError("Build meta data is empty")
        if not _IDENTIFIER.fullmatch(name):
            raise EvaluationError(f"Invalid character(s) found in build meta data {go_quote(name)}")
    return Semver(major_number, minor_number, patch_number, not dash, identifiers, builds)


def _number(name: str, text: str) -> int:
    if text and not _DIGITS.fullmatch(text):
        raise EvaluationError(f"Invalid character(s) found in {name.lower()} number {go_quote(text)}")
    if len(text) > 1 and text[0] == "0":
        raise EvaluationError(f"{name} number must not contain leading zeroes {go_quote(text)}")
    if not text:
        raise EvaluationError('strconv.ParseUint: parsing "": invalid syntax')
    if int(text) > MAX_UINT:
        raise EvaluationError(f"strconv.ParseUint: parsing {go_quote(text)}: value out of range")
    return int(text)


def _identifier(text: str) -> Identifier:
    if not text:
        raise EvaluationError("Prerelease is empty")
    if _DIGITS.fullmatch(text):
        if len(text) > 1 and text[0] == "0":
            raise EvaluationError(f"Numeric PreRelease version must not contain leading zeroes {go_quote(text)}")
        if int(text) > MAX_UINT:
            raise EvaluationError(f"strconv.ParseUint: parsing {go_quote(text)}: value out of range")
        return 0, int(text), ""
    if not _IDENTIFIER.fullmatch(text):
        raise EvaluationError(f"Invalid character(s) found in prerelease {go_quote(text)}")
    return 1, 0, text


def normalized(text: str) -> str:
    """Without a leading `v` and leading zeros, with the parts that are missing.  Raises EvaluationError."""
    parts = text.removeprefix("v").split(".", 2)
    for index, part in enumerate(parts):
        if len(part) > 1:
            shortened = part.lstrip("0")
            parts[index] = shortened if _DIGITS.match(shortened) else "0" + shortened
    if len(parts) < 3:
        if "+" in parts[-1] or "-" in parts[-1]:
            raise EvaluationError("short version cannot contain PreRelease/Build meta data")
        parts += ["0"] * (3 - len(parts))
    return ".".join(parts)


def to_semver(text: str, normalize: bool = False) -> Semver:
    return parse(normalized(text) if normalize else text)


def is_semver(text: str, normalize: bool = False) -> bool:
    try:
        to_semver(text, normalize)
    except EvaluationError:
        return False
    return True


def compare_to(version: Semver, other: Semver) -> int:
    return (version.order > other.order) - (version.order < other.order)


LIBRARY: Final[tuple[Function, ...]] = (
    overload("semver", "string_to_semver", "string -> kubernetes.Semver", to_semver, costs.of_text),
    overload("semver", "string_bool_to_semver", "string, bool -> kubernetes.Semver", to_semver, costs.of_text),
    overload("isSemver", "is_semver_string", "string -> bool", is_semver, costs.of_text),
    overload("isSemver", "is_semver_string_bool", "string, bool -> bool", is_semver, costs.of_text),
    overload(
        ".isGreaterThan",
        "semver_is_greater_than",
        "kubernetes.Semver, kubernetes.Semver -> bool",
        lambda a, b: a.order > b.order,
    ),
    overload(
        ".isLessThan",
        "semver_is_less_than",
        "kubernetes.Semver, kubernetes.Semver -> bool",
        lambda a, b: a.order < b.order,
    ),
    overload(".compareTo", "semver_compare_to", "kubernetes.Semver, kubernetes.Semver -> int", compare_to),
    overload(".major", "semver_major", "kubernetes.Semver -> int", lambda version: version.major),
    overload(".minor", "semver_minor", "kubernetes.Semver -> int", lambda version: version.minor),
    overload(".patch", "semver_patch", "kubernetes.Semver -> int", lambda version: version.patch),
)
