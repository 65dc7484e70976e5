"""The variables, types and functions of expressions; parses and checks an expression.

ExpressionEnvironment({"self": STRING}, FUNCTIONS).compile("self.size() < 10", BOOL)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from farflung.machinery.cel.checker import Checker
from farflung.machinery.cel.errors import NOWHERE, CompileError, Issue
from farflung.machinery.cel.inference import Inference, TooComplexError
from farflung.machinery.cel.language import ast, types
from farflung.machinery.cel.language.ast import Expression
from farflung.machinery.cel.language.declarations import Functions
from farflung.machinery.cel.language.types import DYN, Type
from farflung.machinery.cel.language.values import EvaluationError
from farflung.machinery.cel.parser import parse

#: comparisons of types per check: a fixed number, and more for each character of the expression
STEPS: Final = 20_000
STEPS_PER_CHARACTER: Final = 30

#: names of types in expressions
NAMED: Final[Mapping[str, Type]] = {
    "bool": types.BOOL,
    "int": types.INT,
    "uint": types.UINT,
    "double": types.DOUBLE,
    "string": types.STRING,
    "bytes": types.BYTES,
    "null_type": types.NULL,
    "dyn": types.DYN,
    "list": types.list_of(DYN),
    "map": types.map_of(DYN, DYN),
    "type": types.type_of(DYN),
    "google.protobuf.Timestamp": types.TIMESTAMP,
    "google.protobuf.Duration": types.DURATION,
    types.OPTIONAL_NAME: types.optional_of(DYN),
    **{
        opaque.name: opaque
        for opaque in (types.URL, types.IP, types.CIDR, types.QUANTITY, types.SEMVER, types.NAMED_FORMAT)
    },
}


@dataclass(frozen=True, slots=True)
class Checked:
    """A valid expression: all nodes have types, and all calls have overloads."""

    text: str
    tree: Expression
    type: Type
    references: frozenset[str]  #: the used variables of the environment


class ExpressionEnvironment:
    def __init__(self, variables: Mapping[str, Type], functions: Functions, *, homogeneous: bool = True) -> None:
        """`homogeneous` refuses lists and maps of mixed types, as Kubernetes does."""
        self._variables = variables
        self._functions = functions
        self._homogeneous = homogeneous

    def compile(self, text: str, expected: Type | None = None) -> Checked:
        """The checked expression.  Raises CompileError if it is invalid, or not of the expected type."""
        try:
            tree = parse(text)
            inference = Inference(STEPS + STEPS_PER_CHARACTER * len(text))
            checker = Checker(self._variables, NAMED, self._functions, inference, self._homogeneous)
            root = checker.check(tree)
            issues = checker.issues or constant_issues(checker.nodes)
            if issues:
                raise CompileError(text, issues)
            checked = Checked(text, root, root.type, frozenset(checker.references))
        except TooComplexError:
            raise CompileError(text, [Issue(NOWHERE, "the types of the expression are too complex")]) from None
        except RecursionError:
            raise CompileError(text, [Issue(NOWHERE, "max recursion depth exceeded")]) from None
        if expected is not None and checked.type != expected:
            raise CompileError(text, [Issue(NOWHERE, f"must evaluate to {expected}")])
        return checked


#: overload → placeholder arguments before the checked one
CHECKED: Final[dict[str, tuple[str, ...]]] = {
    "string_to_duration": (),
    "string_to_timestamp": (),
    "matches_string": ("",),
}


def constant_issues(nodes: Iterable[Expression]) -> list[Issue]:
    """Issues of constant arguments that can only fail: an invalid duration, time or pattern."""
    found: list[Issue] = []
    for node in nodes:
        if not isinstance(node, ast.FunctionCall) or len(node.overloads) != 1 or len(node.arguments) != 1:
            continue
        overload, argument = node.overloads[0], node.arguments[0]
        if overload.id in CHECKED and isinstance(argument, ast.Literal) and overload.implementation is not None:
            try:
                overload.implementation(*CHECKED[overload.id], argument.value)
            except EvaluationError:
                found.append(Issue(argument.offset, f"invalid {node.function} argument"))
    return found
