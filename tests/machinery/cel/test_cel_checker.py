"""What types expressions have, and what is said of those that have none."""

from __future__ import annotations

import pytest

from farflung.machinery.cel.environment import Checked, ExpressionEnvironment
from farflung.machinery.cel.errors import CompileError
from farflung.machinery.cel.language import ast
from farflung.machinery.cel.language.types import (
    BOOL,
    DYN,
    INT,
    STRING,
    TIMESTAMP,
    TypeField,
    list_of,
    map_of,
    object_type,
)
from farflung.machinery.cel.library import KUBERNETES

POINT = object_type(
    "Point", {"x": TypeField(INT, "x"), "__in__": TypeField(STRING, "in"), "when": TypeField(TIMESTAMP, "when")}
)
ENVIRONMENT = ExpressionEnvironment(
    {
        "self": POINT,
        "points": list_of(POINT),
        "text": STRING,
        "texts": list_of(STRING),
        "counts": map_of(STRING, INT),
        "any": DYN,
        "request.user": STRING,
    },
    KUBERNETES,
)


def complaints(text: str) -> list[str]:
    with pytest.raises(CompileError) as error:
        ENVIRONMENT.compile(text)
    return [line.removeprefix("ERROR: <input>:") for line in str(error.value).split("\n") if line.startswith("ERROR")]


@pytest.mark.parametrize(
    ("text", "of"),
    [
        ("self.x + 1", "int"),
        ("self.__in__", "string"),
        ("has(self.x)", "bool"),
        ("self.when.getFullYear()", "int"),
        ("points[0].x", "int"),
        ("points.map(p, p.x)", "list(int)"),
        ("points.filter(p, p.x > 1)", "list(Point)"),
        ("points.?x", "!"),
        ("counts.a", "int"),
        ("counts.?a", "optional_type(int)"),
        ("counts.?a.orValue(3)", "int"),
        ("counts[?'a'].optMap(c, string(c))", "optional_type(string)"),
        ("counts[?'a'].optFlatMap(c, texts[?c])", "optional_type(string)"),
        ("counts.map(k, counts[k])", "list(int)"),
        ("counts.transformMap(k, v, string(v))", "map(string, string)"),
        ("counts.transformList(k, v, v)", "list(int)"),
        ("texts.transformMap(i, t, t)", "map(int, string)"),
        ("texts.transformMapEntry(i, t, {t: i})", "map(string, int)"),
        ("texts.all(i, t, i < 3 && t != '')", "bool"),
        ("cel.bind(a, texts, a + a)", "list(string)"),
        ("any.a.b[0]", "dyn"),
        ("any + 1", "int"),
        ("any + any", "dyn"),
        ("any == 1", "bool"),
        ("[any, 1]", "list(dyn)"),
        ("[]", "list(dyn)"),
        ("{}", "map(dyn, dyn)"),
        ("[[], [1]]", "list(list(int))"),
        ("[].map(x, x)", "list(dyn)"),
        ("true ? [] : [1u]", "list(uint)"),
        ("type(text)", "type(string)"),
        ("type(any) == int", "bool"),
        ("request.user", "string"),
        ("self.when == null", "bool"),
        ("optional.none()", "optional_type(dyn)"),
        ("[?counts.?a]", "list(int)"),
        ("1 < 1.5", "bool"),
        ("ip(text).family()", "int"),
        ("cidr(text).containsIP(ip(text))", "bool"),
        ("quantity(text).isGreaterThan(quantity('1'))", "bool"),
        ("url(text).getHost()", "string"),
        ("text.find('[0-9]+')", "string"),
        ("'%s'.format([text])", "string"),
        ("sets.contains(texts, ['a'])", "bool"),
    ],
)
def test_an_expression_has_a_type(text: str, of: str) -> None:
    if of == "!":
        assert complaints(text) == ["1:7: type 'list(Point)' does not support field selection"]
    else:
        assert str(ENVIRONMENT.compile(text).type) == of


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nope", ["1:1: undeclared reference to 'nope' (in container '')"]),
        ("nope.a.b", ["1:1: undeclared reference to 'nope' (in container '')"]),
        ("f(1)", ["1:2: undeclared reference to 'f' (in container '')"]),
        ("text.f(1)", ["1:7: undeclared reference to 'f' (in container '')"]),
        ("self.y == 1", ["1:5: undefined field 'y'"]),
        ("has(self.y)", ["1:4: undefined field 'y'"]),
        ("text.a", ["1:5: type 'string' does not support field selection"]),
        ("1 == 'a'", ["1:3: found no matching overload for '_==_' applied to '(int, string)'"]),
        ("text + 1", ["1:6: found no matching overload for '_+_' applied to '(string, int)'"]),
        ("text.startsWith(1)", ["1:16: found no matching overload for 'startsWith' applied to 'string.(int)'"]),
        ("self.x == null", ["1:8: found no matching overload for '_==_' applied to '(int, null)'"]),
        ("text ? 1 : 2", ["1:6: found no matching overload for '_?_:_' applied to '(string, int, int)'"]),
        (
            "text && 1",
            ["1:1: expected type 'bool' but found 'string'", "1:9: expected type 'bool' but found 'int'"],
        ),
        (
            "self.x.all(i, true)",
            ["1:5: expression of type 'int' cannot be range of a comprehension (must be list, map, or dynamic)"],
        ),
        ("[1, 'a']", ["1:5: expected type 'int' but found 'string'"]),
        ("{'a': 1, 'b': 'c'}", ["1:15: expected type 'int' but found 'string'"]),
        ("[?1]", ["1:3: expected type 'optional_type(int)' but found 'int'"]),
        ("int{}", ["1:4: 'int' is not a message type"]),
        ("Nope{}", ["1:5: undeclared reference to 'Nope' (in container '')"]),
        ("texts.map(t, u)", ["1:14: undeclared reference to 'u' (in container '')"]),
        ("texts.all(t, true) && t == ''", ["1:23: undeclared reference to 't' (in container '')"]),
        ("duration('1x') > duration('1s')", ["1:10: invalid duration argument"]),
        ("timestamp('yesterday') == self.when", ["1:11: invalid timestamp argument"]),
        ("text.matches('(')", ["1:14: invalid matches argument"]),
        (
            "nope == nope",
            [
                "1:1: undeclared reference to 'nope' (in container '')",
                "1:9: undeclared reference to 'nope' (in container '')",
            ],
        ),
    ],
)
def test_what_does_not_fit_is_said_as_cel_go_says_it(text: str, said: list[str]) -> None:
    assert complaints(text) == said


def test_an_expression_of_another_type_is_refused() -> None:
    assert ENVIRONMENT.compile("text", STRING).type == STRING
    with pytest.raises(CompileError, match="must evaluate to bool"):
        ENVIRONMENT.compile("text", BOOL)


def test_the_variables_that_are_used_are_known_and_those_of_macros_are_not_among_them() -> None:
    assert ENVIRONMENT.compile("texts.all(self, self == text)").references == {"texts", "text"}
    assert ENVIRONMENT.compile("request.user == 'a'").references == {"request.user"}


def test_a_call_knows_which_overloads_it_may_mean() -> None:
    assert overloads(ENVIRONMENT.compile("text + 'a'")) == ["add_string"]
    assert len(overloads(ENVIRONMENT.compile("any + any"))) > 5
    assert overloads(ENVIRONMENT.compile("any + 1")) == ["add_int64"]


def overloads(checked: Checked) -> list[str]:
    assert isinstance(checked.tree, ast.FunctionCall)
    return [overload.id for overload in checked.tree.overloads]


def test_names_with_dots_become_one_node() -> None:
    user = ENVIRONMENT.compile("request.user").tree
    assert isinstance(user, ast.Identifier)
    assert user.name == "request.user"
    call = ENVIRONMENT.compile("optional.of(1)").tree
    assert isinstance(call, ast.FunctionCall)
    assert (call.target, call.function) == (None, "optional.of")


def test_what_is_optional_may_hold_what_is_optional() -> None:
    nested = ENVIRONMENT.compile("optional.of(1).optMap(v, optional.of(v).optMap(w, text))")
    assert str(nested.type) == "optional_type(optional_type(string))"


def test_a_variable_of_a_macro_hides_a_namespace() -> None:
    assert complaints("[text].all(optional, optional.of(1))") == [
        "1:33: undeclared reference to 'of' (in container '')"
    ]


@pytest.mark.parametrize(
    "text",
    [
        "[1]" + "".join(f".map(a{i}, {{a{i}: a{i}}})" for i in range(70)),
        "cel.bind(a0, 1, " + "".join(f"cel.bind(a{i + 1}, {{a{i}: a{i}}}, " for i in range(60)) + "a60" + ")" * 61,
    ],
)
def test_types_that_grow_without_bound_are_refused_soon(text: str) -> None:
    assert complaints(text) == ["-1:0: the types of the expression are too complex"]


def test_a_chain_of_optional_maps_takes_time_that_grows_with_its_length_only() -> None:
    assert str(ENVIRONMENT.compile("optional.of(1)" + ".optMap(x, x + 1)" * 60).type) == "optional_type(int)"
