"""The rules of a kind: what happens to one object between decoding and storing.

All of these are pure: they get plain dicts (already type-checked and pruned against the schema) and either change
the new object in place (`default`, `prepare_*`) or return what is wrong with it (`validate*`).  Metadata that every
kind shares is checked elsewhere (`metadata.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from farflung.machinery.errors import FieldError, Obj


def no_change(obj: Obj) -> None: ...
def no_changes(new: Obj, old: Obj) -> None: ...
def _fine(obj: Obj) -> list[FieldError]:
    return []


def _fine_of(new: Obj, old: Obj) -> list[FieldError]:
    return []


def no_warnings(new: Obj, old: Obj | None) -> list[str]:
    return []


@dataclass(frozen=True, slots=True)
class Rules:
    name: Callable[[str], Sequence[str]]  #: what is wrong with a name, in Kubernetes' words; () if nothing
    default: Callable[[Obj], None] = no_change  #: fill in defaults, on every write
    prepare_create: Callable[[Obj], None] = no_change  #: after defaulting: drop status, set what a client may not
    prepare_update: Callable[[Obj, Obj], None] = no_changes  #: (new, old)
    prepare_status: Callable[[Obj, Obj], None] = no_changes  #: (new, old) for /status: keep all but the status
    prepare_delete: Callable[[Obj], None] = no_change  #: when it is marked for deletion (a Namespace's phase)
    validate: Callable[[Obj], list[FieldError]] = _fine
    validate_create: Callable[[Obj], list[FieldError]] = _fine  #: on create only; beside `validate`
    validate_update: Callable[[Obj, Obj], list[FieldError]] = _fine_of  #: (new, old); beside `validate(new)`
    validate_status: Callable[[Obj, Obj], list[FieldError]] = _fine_of  #: (new, old); instead of the two above
    warnings: Callable[[Obj, Obj | None], list[str]] = no_warnings  #: (new, old) → texts of Warning headers
    unconditional_update: bool = True  #: PUT without a resourceVersion overwrites
    create_on_update: bool = False  #: PUT of an absent object creates it
    generation: bool = False  #: the kind counts generations
    another_generation: Callable[[Obj, Obj], bool] | None = None  #: (new, old); None: any but metadata and status
    graceful_seconds: Callable[[Obj], int] | None = None  #: default grace period (Pods)
    short_finalizers: bool = False  #: a finalizer needs no slash (custom resources)
