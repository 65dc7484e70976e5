"""Inference of the type parameters of generic overloads, by assigning types to one another.

The number of steps is limited, because the size of types can be exponential in the length of an expression
(`[1].map(a, {a: a}).map(b, {b: b})` …).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from farflung.machinery.cel.language.types import DYN, Type, TypeKind, parameter

NULLABLE: Final = frozenset({TypeKind.OPAQUE, TypeKind.OBJECT, TypeKind.NULL, TypeKind.TIMESTAMP, TypeKind.DURATION})
ANYTHING: Final = frozenset({TypeKind.DYN, TypeKind.ERROR})


class TooComplexError(Exception):
    """The types of an expression are too large to be compared."""


class Inference:
    def __init__(self, most_steps: int) -> None:
        self._bound: dict[str, Type] = {}
        self._trail: list[tuple[str, Type | None]] = []  #: former bindings, to undo assignments
        self._finished: dict[int, tuple[Type, Type]] = {}  #: by id, with the type that has the id
        self._fresh = 0
        self._steps = most_steps

    def variable(self) -> Type:
        """A new unknown type."""
        self._fresh += 1
        return parameter(f"_var{self._fresh}")

    def assign(self, source: Type, target: Type) -> bool:
        """Assign a value of type `source` to a `target`.  Returns whether it fits; if not, nothing changes."""
        return self.assign_all((source,), (target,))

    def assign_all(self, sources: Sequence[Type], targets: Sequence[Type]) -> bool:
        if len(sources) != len(targets):
            return False
        mark = len(self._trail)
        for source, target in zip(sources, targets, strict=True):
            if not self._assign(source, target):
                while len(self._trail) > mark:
                    name, before = self._trail.pop()
                    if before is None:
                        del self._bound[name]
                    else:
                        self._bound[name] = before
                return False
        return True

    def instantiate(self, types: Sequence[Type]) -> list[Type]:
        """The types with new variables instead of their parameters."""
        variables: dict[str, Type] = {}
        return [self._instantiate(each, variables) for each in types]

    def _instantiate(self, of: Type, variables: dict[str, Type]) -> Type:
        if of.kind is TypeKind.PARAMETER:
            if of.name not in variables:
                variables[of.name] = self.variable()
            return variables[of.name]
        if not of.parameters:
            return of
        return _with(of, tuple(self._instantiate(each, variables) for each in of.parameters))

    def resolve(self, of: Type, *, final: bool = False) -> Type:
        """The type with its known variables replaced; `final`: unknown ones become dyn."""
        self._step()
        while of.kind is TypeKind.PARAMETER:
            if of.name not in self._bound:
                return DYN if final else of
            of = self._bound[of.name]
        if not of.parameters:
            return of
        parameters = tuple(self.resolve(each, final=final) for each in of.parameters)
        same = all(new is old for new, old in zip(parameters, of.parameters, strict=True))
        return of if same else _with(of, parameters)

    def finish(self, of: Type) -> Type:
        """The final type, after all assignments.  Shared parts of types are resolved once."""
        known = self._finished.get(id(of))
        if known is not None:
            return known[1]
        self._step()
        if of.kind is TypeKind.PARAMETER:
            bound = self._bound.get(of.name)
            final = DYN if bound is None else self.finish(bound)
        elif of.parameters:
            parameters = tuple(self.finish(each) for each in of.parameters)
            same = all(new is old for new, old in zip(parameters, of.parameters, strict=True))
            final = of if same else _with(of, parameters)
        else:
            return of
        self._finished[id(of)] = (of, final)
        return final

    def same(self, one: Type, other: Type) -> bool:
        self._step()
        if one is other:
            return True
        if one.kind is not other.kind or one.name != other.name or len(one.parameters) != len(other.parameters):
            return False
        return all(self.same(*pair) for pair in zip(one.parameters, other.parameters, strict=True))

    def more_general(self, one: Type, other: Type) -> Type:
        return one if self._covers(one, other) else other

    def _covers(self, one: Type, other: Type) -> bool:
        """Whether the first type is equal or less specific."""
        self._step()
        if one.kind in (TypeKind.DYN, TypeKind.PARAMETER):
            return True
        if other.kind in (TypeKind.DYN, TypeKind.PARAMETER) or one.kind is not other.kind or one.name != other.name:
            return False
        if one.kind is TypeKind.TYPE or len(one.parameters) != len(other.parameters):
            return one.kind is TypeKind.TYPE
        return all(self._covers(*pair) for pair in zip(one.parameters, other.parameters, strict=True))

    def _assign(self, source: Type, target: Type) -> bool:
        self._step()
        if target.kind is TypeKind.PARAMETER:
            valid, known = self._substitute(source, target)
            if valid or known:
                return valid
        if source.kind is TypeKind.PARAMETER:
            return self._substitute(target, source)[0]
        if source.kind in ANYTHING or target.kind in ANYTHING:
            return True
        if source.kind is TypeKind.NULL:
            return target.kind in NULLABLE
        if target.kind is TypeKind.NULL:
            return source.kind in NULLABLE
        if source.kind is not target.kind:
            return False
        if source.kind is TypeKind.TYPE:
            return True
        if source.name != target.name or len(source.parameters) != len(target.parameters):
            return False
        return all(self._assign(*pair) for pair in zip(source.parameters, target.parameters, strict=True))

    def _substitute(self, value: Type, variable: Type) -> tuple[bool, bool]:
        """Whether the variable may be this type, and whether it was bound before."""
        if value.kind is TypeKind.PARAMETER and value.name == variable.name:
            return True, True
        bound = self._bound.get(variable.name)
        if bound is None:
            if self._occurs(variable, value):
                return False, False
            self._bind(variable, value)
            return True, False
        if self.same(value, bound):
            return True, True
        if not self._assign(value, bound):
            return False, True
        general = self.more_general(value, bound)
        if not self._occurs(variable, general):
            self._bind(variable, general)
        return True, True

    def _bind(self, variable: Type, value: Type) -> None:
        self._trail.append((variable.name, self._bound.get(variable.name)))
        self._bound[variable.name] = value

    def _occurs(self, variable: Type, within: Type) -> bool:
        self._step()
        if within.kind is TypeKind.PARAMETER:
            if within.name == variable.name:
                return True
            bound = self._bound.get(within.name)
            return bound is not None and self._occurs(variable, bound)
        return any(self._occurs(variable, each) for each in within.parameters)

    def _step(self) -> None:
        self._steps -= 1
        if self._steps < 0:
            raise TooComplexError


def _with(of: Type, parameters: tuple[Type, ...]) -> Type:
    return Type(of.kind, of.name, parameters, of.fields, of.max_size, of.list_type, of.list_keys)
