"""Google's own CEL agrees about what is an expression and what its type is; and nothing at all breaks ours."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from cel_expr_python import cel
from cel_expr_python.ext import ext_bindings, ext_optional, ext_strings
from examples import examples
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from farflung.machinery.cel.environment import ExpressionEnvironment
from farflung.machinery.cel.errors import CompileError
from farflung.machinery.cel.language import types
from farflung.machinery.cel.language.declarations import Function, Functions
from farflung.machinery.cel.language.types import Type, TypeKind, is_optional
from farflung.machinery.cel.library import KUBERNETES
from farflung.machinery.cel.parser import parse

ORDERS = ("_<_", "_<=_", "_>_", "_>=_")
VARIABLES = {
    "x": (types.INT, cel.Type.INT),
    "u": (types.UINT, cel.Type.UINT),
    "f": (types.DOUBLE, cel.Type.DOUBLE),
    "s": (types.STRING, cel.Type.STRING),
    "b": (types.BOOL, cel.Type.BOOL),
    "y": (types.BYTES, cel.Type.BYTES),
    "l": (types.list_of(types.INT), cel.Type.List(cel.Type.INT)),
    "m": (types.map_of(types.STRING, types.INT), cel.Type.Map(cel.Type.STRING, cel.Type.INT)),
    "d": (types.DYN, cel.Type.DYN),
    "t": (types.TIMESTAMP, cel.Type.TIMESTAMP),
}


def without_mixed_orders(functions: Functions) -> Functions:
    """Kubernetes lets numbers of different types be compared, the oracle does not."""
    return {
        name: Function(name, tuple(each for each in function.overloads if len(set(each.arguments)) == 1))
        if name in ORDERS
        else function
        for name, function in functions.items()
    }


def backwards(functions: Functions) -> Functions:
    return {name: Function(name, function.overloads[::-1]) for name, function in functions.items()}


@cache
def ours(order: Callable[[Functions], Functions]) -> ExpressionEnvironment:
    variables = {name: our for name, (our, _) in VARIABLES.items()}
    return ExpressionEnvironment(variables, order(without_mixed_orders(KUBERNETES)), homogeneous=False)


@cache
def oracle() -> Any:
    return cel.NewEnv(
        variables={name: its for name, (_, its) in VARIABLES.items()},
        extensions=[ext_bindings.ExtBindings(), ext_optional.ExtOptional(), ext_strings.ExtStrings()],
    )


def oracle_name(of: Type) -> str:
    if of.kind is TypeKind.TYPE:
        return f"TYPE<{oracle_name(of.parameters[0])}>"
    if of.kind in (TypeKind.LIST, TypeKind.MAP) or is_optional(of):
        name = of.name if is_optional(of) else of.name.upper()
        return f"{name}<{', '.join(map(oracle_name, of.parameters))}>"
    return of.name.upper()


def our_verdict(text: str, order: Callable[[Functions], Functions] = dict) -> str | None:
    try:
        return oracle_name(ours(order).compile(text).type)
    except CompileError:
        return None


OPEN_RANGE = "expression of type 'dyn' cannot be the range of a comprehension"


def its_verdict(text: str) -> str | None:
    """None if it refuses the expression.  Examples with a loop over a value whose type is still open (`{}.a`) are left
    out: Kubernetes' CEL takes such a range as dynamic, and so do we; the oracle refuses it."""
    try:
        return str(oracle().compile(text).return_type().name())
    except RuntimeError as error:
        assume(OPEN_RANGE not in str(error))
        return None


atoms = st.sampled_from([*VARIABLES, "1", "2u", "1.5", "'a'", "true", "null", "[]", "{}", "b'a'", "int", "type(x)"])
keys = st.sampled_from(["'a'", "1", "x", "s", "true"])


def compound(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    binary = st.sampled_from(["+", "-", "*", "/", "%", "==", "!=", "<", ">=", "in", "&&", "||"])
    loop = st.sampled_from(["all", "exists", "exists_one", "map", "filter"])
    variable = st.sampled_from(["x", "v", "s"])
    unary = st.sampled_from(["size", "int", "string", "type", "dyn", "double", "bool", "bytes", "uint", "!", "-"])
    with_argument = st.sampled_from(["startsWith", "contains", "matches", "endsWith", "orValue", "or"])
    without = st.sampled_from(["size", "getFullYear", "lowerAscii", "trim", "hasValue", "value"])
    return st.one_of(
        st.builds("({} {} {})".format, inner, binary, inner),
        st.builds("({} ? {} : {})".format, inner, inner, inner),
        st.lists(inner, max_size=3).map(lambda elements: f"[{', '.join(elements)}]"),
        st.builds("{{{}: {}}}".format, keys, inner),
        st.builds("{}.{}({}, {})".format, inner, loop, variable, inner),
        st.builds("{}[{}]".format, inner, inner),
        st.builds("{}[?{}]".format, inner, inner),
        st.builds("{}({})".format, unary, inner),
        st.builds("{}.{}({})".format, inner, with_argument, inner),
        st.builds("{}.{}()".format, inner, without),
        st.builds("{}.?a".format, inner),
        st.builds("{}.a".format, inner),
        st.builds("has({}.a)".format, inner),
        st.builds("cel.bind(v, {}, {})".format, inner, inner),
        st.builds("optional.of({})".format, inner),
        st.builds("{}.optMap(v, {})".format, inner, inner),
    )


expressions = st.recursive(atoms, compound, max_leaves=6)

tokens = st.sampled_from(
    [
        *("1", "x", "'a'", "+", "-", "==", "&&", "!", "?", ":", "(", ")", "[", "]", "{", "}", ",", ".", "true", "in"),
        *("null", "1.5", "2u", "b'c'", "f(", "x.y", "has(x.y)", "l.all(i, i>0)", " ", ".?", "[?", "//", "\n", "'"),
        *('"""', "@", "as"),
    ]
)


@settings(max_examples=examples(400))
@given(expressions)
@example("(d + {}.a)")
@example("optional.of(null).orValue(optional.of(x))")
@example("{}.a.all(x, x)")
def test_the_oracle_finds_the_same_types(text: str) -> None:
    """Where several overloads fit a type that is still open, as `{}.a` in `d + {}.a`, the first overload counts.  The
    oracle has its overloads in another order than Kubernetes.  And where `null` stands for another type, we name the
    result after the first of the two, the oracle after the one that is not `null`."""
    verdict = our_verdict(text)
    assume(verdict == our_verdict(text, backwards))
    its = its_verdict(text)
    assert verdict == its or (verdict is not None and its is not None and "NULL" in verdict)


@settings(max_examples=examples(400))
@given(st.lists(tokens, max_size=9).map("".join))
def test_the_oracle_takes_the_same_texts_for_expressions(text: str) -> None:
    try:
        oracle().compile(text, disable_check=True)
        accepted = True
    except RuntimeError:
        accepted = False
    try:
        parse(text)
    except CompileError:
        assert not accepted
    else:
        assert accepted


@settings(max_examples=examples(300))
@given(st.one_of(st.text(), st.text(alphabet="()[]{}.,?:!-+*/%&|<>='\"\\abrux01eE_` \n"), expressions))
def test_any_text_is_compiled_or_refused(text: str) -> None:
    try:
        ours(dict).compile(text)
    except CompileError as error:
        assert str(error)
