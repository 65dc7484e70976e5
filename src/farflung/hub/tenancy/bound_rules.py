"""Rules of bound resources that are built-in kinds of Kubernetes: those of the exported schema, then Kubernetes' own.

Every edge would refuse an object that breaks Kubernetes' rules, so the hub refuses it first.  Kubernetes' rules see the
object with defaults, as an edge creates it.  Defaults are not stored: an exported schema has its own.  Objects from an
edge are not validated again, because the edge accepted them and may be newer; neither are virtual machines.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Final

import msgspec

from farflung.apis.builtin.rules import rules_for
from farflung.apis.edge.names import UPSYNCED
from farflung.apis.resource import Resource
from farflung.apis.validation import Errors, Rules, check_name
from farflung.hub.catalog.custom_rules import STATUS, differs
from farflung.hub.catalog.kinds import shape_of
from farflung.machinery.errors import FieldError, Malformed, Obj

Mistake = tuple[str, str]  #: field and detail of an error

#: mistakes that kcp accepts in the kinds of its export `kubernetes`, by group and plural
KCP_ACCEPTS: Final[dict[tuple[str, str], frozenset[Mistake]]] = {
    ("apps", "deployments"): frozenset(
        {
            ("spec.template.metadata.labels", "`selector` does not match template `labels`"),
            ("spec.template.spec.containers", ""),
            ("spec.selector", "field is immutable"),
        }
    ),
}

#: fields that an edge allocates before it validates them, by group and plural
ALLOCATED: Final[dict[tuple[str, str], frozenset[Mistake]]] = {
    ("", "services"): frozenset({("spec.healthCheckNodePort", "")}),
}

#: kinds whose immutable fields are left to edges, by group and plural: a Pod of a workspace runs nowhere, and copies of
#: it are replaced; whether a claim can grow depends on its status at the edge
CHANGEABLE: Final = frozenset({("", "pods"), ("", "persistentvolumeclaims")})


def is_exempt(obj: Obj) -> bool:
    spec = obj.get("spec")
    is_machine = isinstance(spec, dict) and "virtualMachine" in spec
    return is_machine or UPSYNCED in (obj["metadata"].get("annotations") or {})


def with_builtin_rules(
    rules: Rules, native: Resource, accepted: Collection[Mistake] = (), *, same_types: bool = False
) -> Rules:
    """`rules` of the schema, and those of the built-in kind for objects that the schema admits.  `same_types`: whether
    the fields of the schema have the types of the built-in kind."""
    builtin = rules_for(native.group, native.kind)
    conform = shape_of(native).conformer.conform
    changeable = (native.group, native.plural) in CHANGEABLE
    accepted = {*accepted, *ALLOCATED.get((native.group, native.plural), ())}

    def as_created(obj: Obj) -> Obj | None:
        """The object as an edge creates it; None if Kubernetes' rules do not apply to it, or its fields have other
        types by the schema.  Raises Malformed if a value does not fit one of the `same_types`."""
        if is_exempt(obj):
            return None
        sent = {name: value for name, value in obj.items() if name != STATUS}
        try:
            created: Obj = msgspec.to_builtins(conform(sent).obj)  # a copy: the conformed object shares lists
        except Malformed:
            if same_types:
                raise
            return None
        builtin.default(created)
        builtin.prepare_create(created)
        return created

    def remaining(errors: list[FieldError]) -> list[FieldError]:
        return [one for one in errors if (one.field, one.detail) not in accepted] if accepted else errors

    def validate_create(new: Obj) -> list[FieldError]:
        errors: Errors = rules.validate_create(new)
        created = None if errors else as_created(new)
        if created is None:
            return errors
        check_name(builtin.name, created["metadata"].get("name", ""), "metadata.name", errors)
        return remaining([*errors, *builtin.validate(created), *builtin.validate_create(created)])

    def validate_update(new: Obj, old: Obj) -> list[FieldError]:
        """Mistakes of the old object are accepted: it may be older than these rules."""
        errors = rules.validate_update(new, old)
        if errors or not differs(new, old):
            return errors
        try:
            before = as_created(old)
        except Malformed:
            return errors
        after = None if before is None else as_created(new)
        if after is None or before is None:
            return errors
        errors = builtin.validate(after)
        if errors:
            known = set(map(str, builtin.validate(before)))
            errors = [one for one in errors if str(one) not in known]
        if changeable:
            return errors
        return remaining([*errors, *builtin.validate_update(after, before)])

    return replace(rules, validate_create=validate_create, validate_update=validate_update)
