"""Random CEL expressions and data for them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from farflung.machinery.cel.language.types import BOOL, DOUBLE, DYN, INT, STRING, Type, list_of, map_of

VARIABLES: dict[str, Type] = {
    "i": INT,
    "j": INT,
    "s": STRING,
    "b": BOOL,
    "f": DOUBLE,
    "ints": list_of(INT),
    "texts": list_of(STRING),
    "m": map_of(STRING, INT),
    "any": DYN,
}
numbers = st.one_of(
    st.integers(-5, 5), st.sampled_from([2**63 - 1, -(2**63) + 1, 2**62, -(2**62), 2**32, 3037000500, 10**18])
)
letters = st.text(st.sampled_from("abA-. é€😀"), max_size=6)
doubles = st.floats(-1e6, 1e6).map(lambda number: f"({number!r})") | st.sampled_from(
    ["0.0", "1.5", "-2.25", "1e300", "double('NaN')"]
)
separators = st.sampled_from(["'a'", "'-'", "'é'", "'aa'"])  #: no empty one: C++ splits '' by '' into one text
quoted = letters.map(lambda text: f"'{text}'")


def _in(template: str, **parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.fixed_dictionaries(parts).map(lambda found: template.format(**found))


def _grow(children: dict[str, st.SearchStrategy[str]]) -> dict[str, st.SearchStrategy[str]]:
    """Expressions of each type around expressions of all types."""
    n, t, q, d, li, ls, m, x = (
        children[name] for name in ("int", "text", "bool", "double", "ints", "texts", "map", "any")
    )
    moment, span = children["moment"], children["span"]
    arithmetic = st.sampled_from("+-*/%")
    comparison = st.sampled_from(["<", "<=", ">", ">=", "==", "!="])
    return {
        "int": st.one_of(
            _in("({a} {o} {b})", a=n, o=arithmetic, b=n),
            _in("(-({a}))", a=n),
            _in("size({a})", a=st.one_of(t, li, ls, m)),
            _in("{a}.size()", a=st.one_of(t, li, ls, m)),
            _in("{a}[{b}]", a=li, b=n),
            _in("{a}[{b}]", a=m, b=t),
            _in("int({a})", a=st.one_of(d, n, t)),
            _in("({q} ? {a} : {b})", q=q, a=n, b=n),
            _in("{a}.indexOf({b})", a=t, b=t),
            _in("{a}.lastIndexOf({b})", a=t, b=t),
            _in("int({a})", a=moment),
            _in(
                "{a}.{g}({z})",
                a=moment,
                g=st.sampled_from(
                    ["getFullYear", "getMonth", "getDate", "getDayOfWeek", "getDayOfYear", "getHours", "getMinutes"]
                ),
                z=st.sampled_from(["", "'America/New_York'", "'+05:30'", "'Asia/Tokyo'", "'nowhere'"]),
            ),
            _in("{a}.{g}()", a=span, g=st.sampled_from(["getHours", "getMinutes", "getSeconds"])),
        ),
        "double": st.one_of(
            _in("({a} {o} {b})", a=d, o=st.sampled_from("+-*/"), b=d),
            _in("(-({a}))", a=d),
            _in("double({a})", a=st.one_of(n, t)),
        ),
        "text": st.one_of(
            _in("({a} + {b})", a=t, b=t),
            _in("string({a})", a=st.one_of(n, q, t)),
            _in("{a}.substring({b})", a=t, b=n),
            _in("{a}.charAt({b})", a=t, b=n),
            _in("{a}.replace({b}, {c})", a=t, b=t, c=t),
            _in("{a}.lowerAscii()", a=t),
            _in("{a}.upperAscii()", a=t),
            _in("{a}.trim()", a=t),
            _in("{a}.join({b})", a=ls, b=t),
            _in("{a}[{b}]", a=ls, b=n),
            _in("({q} ? {a} : {b})", q=q, a=t, b=t),
        ),
        "bool": st.one_of(
            _in("({a} {o} {b})", a=n, o=comparison, b=n),
            _in("({a} {o} {b})", a=t, o=comparison, b=t),
            _in("({a} {o} {b})", a=d, o=comparison, b=d),
            _in("({a} {o} {b})", a=moment, o=comparison, b=moment),
            _in("({a} {o} {b})", a=span, o=comparison, b=span),
            _in("({a} {o} {b})", a=li, o=st.sampled_from(["==", "!="]), b=li),
            _in("({a} {o} {b})", a=m, o=st.sampled_from(["==", "!="]), b=m),
            _in("({a} == {b})", a=x, b=st.one_of(x, n, t, li, d)),
            _in("({a} {o} {b})", a=q, o=st.sampled_from(["&&", "||", "==", "!="]), b=q),
            _in("(!{a})", a=q),
            _in("({a} in {b})", a=n, b=li),
            _in("({a} in {b})", a=t, b=st.one_of(ls, m)),
            _in("{a}.contains({b})", a=t, b=t),
            _in("{a}.startsWith({b})", a=t, b=t),
            _in("{a}.endsWith({b})", a=t, b=t),
            _in("{a}.matches({b})", a=t, b=st.sampled_from(["'a+'", "'^a.b$'", "'[a' + 'b'", "'é|x'", "''"])),
            _in(
                "{a}.{k}(e, {t})",
                a=li,
                k=st.sampled_from(["all", "exists", "exists_one"]),
                t=st.sampled_from(["e > 0", "10 / e > 1", "e == i", "e in ints", "e * e > 5", "1 / 0 > e"]),
            ),
            _in("bool({a})", a=t),
            _in("has({a}.a)", a=m),
            st.sampled_from(["any.a == any.b", "'a' in any", "type(any) == int"]),
        ),
        "ints": st.one_of(
            _in("[{a}, {b}]", a=n, b=n),
            _in("({a} + {b})", a=li, b=li),
            _in("{a}.map(e, {t})", a=li, t=st.sampled_from(["e * 2", "e + i", "10 / e", "size(ints)", "ints[e]"])),
            _in("{a}.map(e, e > 0, e - 1)", a=li),
            _in("{a}.filter(e, {t})", a=li, t=st.sampled_from(["e > 0", "e % 2 == 0", "ints.exists(o, o < e)"])),
        ),
        "texts": st.one_of(
            _in("[{a}, {b}]", a=t, b=t),
            _in("{a}.split({b})", a=t, b=separators),
            _in("{a}.split({b}, {c})", a=t, b=separators, c=st.sampled_from(["-1", "0", "1", "2"])),
            _in("({a} + {b})", a=ls, b=ls),
            _in("{a}.map(e, e + s)", a=ls),
        ),
        "map": st.one_of(_in("{{{a}: {b}}}", a=t, b=n), st.just("m")),
        "any": st.one_of(_in("dyn({a})", a=st.one_of(n, t, li, m, d)), st.just("any")),
        "moment": st.one_of(
            _in("({a} + {b})", a=moment, b=span),
            _in("({a} - {b})", a=moment, b=span),
            _in("timestamp({a})", a=n),
        ),
        "span": st.one_of(_in("({a} - {b})", a=moment, b=moment), _in("({a} + {b})", a=span, b=span)),
    }


LEAVES: dict[str, st.SearchStrategy[str]] = {
    "int": numbers.map(lambda number: f"({number})") | st.sampled_from(["i", "j"]),
    "double": doubles | st.just("f"),
    "text": quoted | st.just("s"),
    "bool": st.sampled_from(["true", "false", "b"]),
    "ints": st.lists(numbers, max_size=3).map(str) | st.just("ints"),
    "texts": st.lists(quoted, max_size=3).map(lambda parts: f"[{', '.join(parts)}]") | st.just("texts"),
    "map": st.just("m"),
    "any": st.just("any"),
    "moment": st.sampled_from(
        ["timestamp('2020-02-29T12:30:00Z')", "timestamp('1969-12-31T23:59:59+14:00')", "timestamp(s)"]
    ),
    "span": st.sampled_from(["duration('1h')", "duration('-90m')", "duration('1.5s')", "duration(s)"]),
}


def expressions() -> st.SearchStrategy[str]:
    level = LEAVES
    for _ in range(3):
        deeper = _grow(level)
        level = {name: st.one_of(LEAVES[name], level[name], deeper[name]) for name in LEAVES}
    return st.one_of(*(level[name] for name in LEAVES if name != "any"))


DATA = st.fixed_dictionaries(
    {
        "i": numbers,
        "j": numbers,
        "s": letters,
        "b": st.booleans(),
        "f": st.floats(-1e3, 1e3),
        "ints": st.lists(numbers, max_size=4),
        "texts": st.lists(letters, max_size=3),
        "m": st.dictionaries(letters, numbers, max_size=3),
        "any": st.one_of(
            numbers,
            letters,
            st.lists(numbers, max_size=2),
            st.dictionaries(st.sampled_from("abc"), st.one_of(numbers, letters, st.none()), max_size=3),
        ),
    }
)
SOME_DATA: dict[str, Any] = {
    "i": 3, "j": 0, "s": "ab", "b": True, "f": 1.5, "ints": [1, 0, 2], "texts": ["a"], "m": {"a": 1}, "any": {"a": 1},
}  # fmt: skip


# --- expressions that may make no sense -----------------------------------------------------------

WORDS = [
    *[
        "s",
        "i",
        "m",
        "any",
        "ints",
        "texts",
        "1",
        "0",
        "-1",
        "2.5",
        "'a'",
        "''",
        "b'x'",
        "null",
        "true",
        "[",
        "]",
        "(",
        ")",
        "{",
        "}",
        ".",
        ",",
        ":",
        "?",
        "+",
        "-",
        "*",
        "/",
        "%",
        "==",
        "!=",
        "<",
        "in",
        "&&",
        "||",
        "!",
        ".?",
        "[?",
    ],
    *[
        "string(",
        "int(",
        "timestamp(",
        "duration(",
        "quantity(",
        "ip(",
        "cidr(",
        "url(",
        "semver(",
        "type(",
        "dyn(",
        "optional.of(",
        "orValue(1)",
    ],
    *[
        "join(',')",
        "split('')",
        "replace('',s)",
        "format([1])",
        "matches('a')",
        "flatten()",
        "sort()",
        "distinct()",
        "reverse()",
        "size()",
    ],
    *[
        "value()",
        "hasValue()",
        "getHours('UTC')",
        "charAt(0)",
        "substring(1)",
        "indexOf('a')",
        "lists.range(9)",
        "sum()",
        "min()",
    ],
    "map(x, x)",
    "all(x, x > 0)",
    "filter(x, true)",
    "exists(x, x == 1)",
    "transformList(a, b, b)",
]
MEMBERS = [word for word in WORDS if word.endswith(")") and len(word) > 1]
CONVERSIONS = [word for word in WORDS if word.endswith("(") and len(word) > 1]


OPERATORS = ["+", "-", "*", "/", "==", "<", "in", "&&", "||"]
PIECES = st.recursive(
    st.sampled_from(["s", "i", "m", "any", "ints", "texts", "1", "0", "'a'", "2.5", "null", "[]", "{}", "any.a", "x"]),
    lambda inner: st.one_of(
        st.builds("({} {} {})".format, inner, st.sampled_from(OPERATORS), inner),
        st.builds("dyn({}).{}".format, inner, st.sampled_from(MEMBERS)),
        st.builds("{}dyn({}))".format, st.sampled_from(CONVERSIONS), inner),
        st.builds("dyn({}).map(x, {})".format, inner, inner),
        st.builds("dyn({})[{}]".format, inner, inner),
        st.builds("[{}, {}]".format, inner, inner),
        st.builds("({} ? {} : {})".format, inner, inner, inner),
    ),
    max_leaves=8,
)
