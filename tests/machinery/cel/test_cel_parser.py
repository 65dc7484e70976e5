"""What CEL's grammar takes, what trees it makes, and what it says of the rest."""

from __future__ import annotations

from typing import Any

import pytest

from farflung.machinery.cel.errors import CompileError
from farflung.machinery.cel.language import ast
from farflung.machinery.cel.parser import MAX_CHARACTERS, MAX_NESTING, parse

BEGINS = (
    "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}"
)


def shown(node: Any) -> str:
    """A tree as text: calls in front of their arguments."""
    match node:
        case ast.Literal():
            return f"{node.value.value}u" if isinstance(node.value, ast.UnsignedInteger) else repr(node.value)
        case ast.Identifier():
            return node.name
        case ast.Select():
            return f"{'has ' if node.test_only else ''}{shown(node.operand)}.{node.field}"
        case ast.FunctionCall():
            target = f"{shown(node.target)}." if node.target else ""
            return f"{target}{node.function}({', '.join(map(shown, node.arguments))})"
        case ast.ListLiteral():
            marks = ["?" if index in node.optional_indices else "" for index in range(len(node.elements))]
            return f"[{', '.join(mark + shown(each) for mark, each in zip(marks, node.elements, strict=True))}]"
        case ast.MapLiteral():
            entries = [f"{'?' * each.optional}{shown(each.key)}: {shown(each.value)}" for each in node.entries]
            return f"{{{', '.join(entries)}}}"
        case ast.StructLiteral():
            return f"{node.name}{{{', '.join(f'{each.field}: {shown(each.value)}' for each in node.fields)}}}"
        case ast.Comprehension():
            variables = node.variable + (f", {node.second_variable}" if node.second_variable else "")
            return (
                f"for {variables} in {shown(node.range)}: {node.accumulator} = {shown(node.init)} "
                f"while {shown(node.condition)} do {shown(node.step)} then {shown(node.result)}"
            )
    raise AssertionError(node)


def complaints(text: str) -> list[str]:
    """The first lines of what is said."""
    with pytest.raises(CompileError) as error:
        parse(text)
    return [line.removeprefix("ERROR: <input>:") for line in str(error.value).split("\n") if line.startswith("ERROR")]


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("1 + 2 * 3 - 4", "_-_(_+_(1, _*_(2, 3)), 4)"),
        ("a || b && c", "_||_(a, _&&_(b, c))"),
        ("a < b == c", "_==_(_<_(a, b), c)"),
        ("a in b", "@in(a, b)"),
        ("a ? b : c ? d : e", "_?_:_(a, b, _?_:_(c, d, e))"),
        ("!a && !!b", "_&&_(!_(a), b)"),
        ("-1 - -x", "_-_(-1, -_(x))"),
        ("--1", "1"),
        ("!-1", "!_(-1)"),
        ("a && b && c && d", "_&&_(_&&_(a, b), _&&_(c, d))"),
        ("(a && b) && c", "_&&_(_&&_(a, b), c)"),
        ("a.b.c(1)[2]", "_[_](a.b.c(1), 2)"),
        ("a.?b[?0]", "_[?_](_?._(a, 'b'), 0)"),
        (".a.b", ".a.b"),
        (".f(1)", ".f(1)"),
        ("[1, ?x, 2,]", "[1, ?x, 2]"),
        ("[,]", "[]"),
        ("{'a': 1, ?'b': c}", "{'a': 1, ?'b': c}"),
        ("a.B{c: 1, d: 2}", "a.B{c: 1, d: 2}"),
        ("x.if.for", "x.if.for"),
        ("a // the rest\n + b", "_+_(a, b)"),
        ("has(a.b.c)", "has a.b.c"),
        (
            "l.all(x, x > 0)",
            "for x in l: @result = True while @not_strictly_false(@result) do _&&_(@result, _>_(x, 0)) then @result",
        ),
        (
            "l.exists(i, v, b)",
            "for i, v in l: @result = False while @not_strictly_false(!_(@result)) do _||_(@result, b) then @result",
        ),
        (
            "l.exists_one(x, b)",
            "for x in l: @result = 0 while True do _?_:_(b, _+_(@result, 1), @result) then _==_(@result, 1)",
        ),
        ("l.map(x, y)", "for x in l: @result = [] while True do _+_(@result, [y]) then @result"),
        (
            "l.map(x, b, y)",
            "for x in l: @result = [] while True do _?_:_(b, _+_(@result, [y]), @result) then @result",
        ),
        (
            "l.filter(x, b)",
            "for x in l: @result = [] while True do _?_:_(b, _+_(@result, [x]), @result) then @result",
        ),
        (
            "m.transformMap(k, v, b, v)",
            "for k, v in m: @result = {} while True do _?_:_(b, cel.@mapInsert(@result, k, v), @result) then @result",
        ),
        (
            "m.transformMapEntry(k, v, {v: k})",
            "for k, v in m: @result = {} while True do cel.@mapInsert(@result, {v: k}) then @result",
        ),
        ("cel.bind(x, 1, x + x)", "for #unused in []: x = 1 while False do x then _+_(x, x)"),
        ("m.bind(x, 1, x)", "m.bind(x, 1, x)"),
        ("l.all(x)", "l.all(x)"),
    ],
)
def test_a_tree_follows_precedence_and_macros(text: str, tree: str) -> None:
    assert shown(parse(text)) == tree


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("9223372036854775807", 2**63 - 1),
        ("-9223372036854775808", -(2**63)),
        ("0x1F", 31),
        ("-0x10", -16),
        ("000000000000000000000000000007", 7),
        ("18446744073709551615u", ast.UnsignedInteger(2**64 - 1)),
        ("0xffU", ast.UnsignedInteger(255)),
        ("1.5e3", 1500.0),
        (".5", 0.5),
        ("1e-2", 0.01),
        ("null", None),
        ("false", False),
        (r"'a\n\t\\\'\"\?\`'", "a\n\t\\'\"?`"),
        (r"'\x41\u00e9\U0001F600\101'", "A\u00e9\U0001f600A"),
        (r"r'\n'", "\\n"),
        (r'R"a\"', "a\\"),
        ("'''a\n'b'\r\nc'''", "a\n'b'\nc"),
        ('"""a"b"""', 'a"b'),
        (r"r'''\'''", "\\"),
        ("''", ""),
        (r"b'\xff\377é'", b"\xff\xff\xc3\xa9"),
        ("B'''a'''", b"a"),
        (r"br'\x'", b"\\x"),
    ],
)
def test_a_literal_has_its_value(text: str, value: ast.LiteralValue) -> None:
    node = parse(text)
    assert isinstance(node, ast.Literal)
    assert node.value == value
    assert type(node.value) is type(value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", [f"1:1: Syntax error: mismatched input '<EOF>' expecting {BEGINS}"]),
        ("self.foo > ", [f"1:12: Syntax error: mismatched input '<EOF>' expecting {BEGINS}"]),
        ("1 2", ["1:3: Syntax error: extraneous input '2' expecting <EOF>"]),
        ("a b c", ["1:3: Syntax error: mismatched input 'b' expecting <EOF>"]),
        ("1 + + 2", [f"1:5: Syntax error: extraneous input '+' expecting {BEGINS}"]),
        ("(1", ["1:3: Syntax error: missing ')' at '<EOF>'"]),
        ("x[(1]", ["1:5: Syntax error: missing ')' at ']'"]),
        ("[1", ["1:3: Syntax error: mismatched input '<EOF>' expecting {']', ','}"]),
        ("[1,,2]", ["1:4: Syntax error: mismatched input ',' expecting ']'"]),
        ("{1", ["1:3: Syntax error: mismatched input '<EOF>' expecting ':'"]),
        ("{a b}", ["1:4: Syntax error: missing ':' at 'b'"]),
        ("f(1,)", [f"1:5: Syntax error: mismatched input ')' expecting {BEGINS}"]),
        ("f(a b)", ["1:5: Syntax error: extraneous input 'b' expecting ')'"]),
        ("a ? b", ["1:6: Syntax error: mismatched input '<EOF>' expecting ':'"]),
        ("x.", ["1:3: Syntax error: no viable alternative at input '.'"]),
        ("x.(", ["1:3: Syntax error: no viable alternative at input '.('"]),
        ("self. true", ["1:7: Syntax error: no viable alternative at input '. true'"]),
        ("self.true", ["1:6: Syntax error: mismatched input 'true' expecting IDENTIFIER"]),
        ("x.?", ["1:4: Syntax error: mismatched input '<EOF>' expecting {IDENTIFIER, ESC_IDENTIFIER}"]),
        ("-!x", ["1:2: Syntax error: no viable alternative at input '-!'"]),
        ("!", [f"1:2: Syntax error: extraneous input '<EOF>' expecting {BEGINS}"]),
        (
            "a & b",
            [
                "1:3: Syntax error: token recognition error at: '& '",
                "1:5: Syntax error: extraneous input 'b' expecting <EOF>",
            ],
        ),
        (
            '"abc\n"',
            [
                "1:1: Syntax error: token recognition error at: '\"abc\\n'",
                "2:1: Syntax error: token recognition error at: '\"'",
                f"2:2: Syntax error: mismatched input '<EOF>' expecting {BEGINS}",
            ],
        ),
        (
            "self.all(x x.name != '')",
            [
                "1:12: Syntax error: mismatched input 'x' expecting ')'",
                "1:24: Syntax error: extraneous input ')' expecting <EOF>",
            ],
        ),
        (
            "(y1.5 + 2) in [1]",
            [
                "1:4: Syntax error: mismatched input '.5' expecting ')'",
                "1:10: Syntax error: mismatched input ')' expecting <EOF>",
            ],
        ),
        (
            "['a'(,'b']",
            [
                "1:5: Syntax error: extraneous input '(' expecting {']', ','}",
                "1:7: Syntax error: extraneous input ''b'' expecting ']'",
            ],
        ),
        ("as", ["1:1: reserved identifier: as"]),
        ("f(namespace)", ["1:3: reserved identifier: namespace"]),
        ("9223372036854775808", ["1:1: invalid int literal"]),
        ("1" * 5000, ["1:1: invalid int literal"]),
        ("18446744073709551616u", ["1:1: invalid uint literal"]),
        ("1e999", ["1:1: invalid double literal"]),
        (r"'\ud800'", ["1:1: invalid unicode code point"]),
        (r"b'\u0041'", ["1:1: unable to unescape string"]),
        ("x.`a-b`", ["1:3: unsupported syntax: '`'"]),
        ("has(a)", ["1:5: invalid argument to has() macro"]),
        ("l.all(1, true)", ["1:7: argument must be a simple name"]),
        ("l.all(.x, true)", ["1:8: argument must be a simple name"]),
        ("l.map(a.b, true)", ["1:8: argument is not an identifier"]),
        ("l.all(i, i, true)", ["1:10: duplicate variable name: i"]),
        ("cel.bind(1, 2, 3)", ["1:10: cel.bind() variable names must be simple identifiers"]),
        ("o.optMap(1, 2)", ["1:10: optMap() variable name must be a simple identifier"]),
    ],
)
def test_what_is_wrong_is_said_as_cel_go_says_it(text: str, said: list[str]) -> None:
    assert complaints(text) == said


def test_a_complaint_shows_the_line_and_marks_the_place() -> None:
    with pytest.raises(CompileError) as error:
        parse("'é' +\n\tüber")
    assert str(error.value).startswith(
        "ERROR: <input>:2:2: Syntax error: token recognition error at: 'ü'\n |  über\n | .＾"  # noqa: RUF001
    )


def test_after_thirty_mistakes_the_parser_gives_up() -> None:
    assert complaints("[" + "(1 2 3," * 50)[-1].endswith("error recovery attempt limit exceeded: 30")


def test_no_more_than_a_hundred_complaints_are_shown() -> None:
    said = complaints("@" * 250)
    assert len(said) == 100
    with pytest.raises(CompileError, match="151 more errors were truncated"):
        parse("@" * 250)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("(" * 50_000, f"expression recursion limit exceeded: {MAX_NESTING}"),
        ("[" * 50_000, f"expression recursion limit exceeded: {MAX_NESTING}"),
        ("1" + "+1" * 5_000, "max recursion depth exceeded"),
        ("a" + ".b" * 5_000, "max recursion depth exceeded"),
        ("a?b:" * 5_000 + "c", "max recursion depth exceeded"),
        ("l.map(x, true, " * 99 + "x" + ")" * 99, "max recursion depth exceeded"),
        (
            "a" * (MAX_CHARACTERS + 1),
            f"expression code point size exceeds limit: size: {MAX_CHARACTERS + 1}, limit {MAX_CHARACTERS}",
        ),
    ],
)
def test_what_is_too_deep_or_too_long_is_refused(text: str, said: str) -> None:
    assert complaints(text) == [f"-1:0: {said}"]


def test_long_chains_of_logic_are_no_deep_trees() -> None:
    assert shown(parse(" && ".join(["a"] * 3_000))).count("a") == 3_000
