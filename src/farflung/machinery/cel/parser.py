"""Text to tree: operators by precedence, everything else by recursive descent.

    parse("self.size() > 3")      raises CompileError

A level of nesting takes at most seven Python frames, and MAX_NESTING limits the levels.  Chains of operators and
members are parsed in loops; Builder limits the depth of their trees.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from farflung.machinery.cel import lexer, literals, macros
from farflung.machinery.cel.builder import Builder, TooDeepError
from farflung.machinery.cel.errors import NOWHERE, CompileError, Issue
from farflung.machinery.cel.language import ast
from farflung.machinery.cel.language.ast import Expression
from farflung.machinery.cel.lexer import (
    END,
    ESCAPED_IDENTIFIER,
    IDENTIFIER,
    HopelessError,
    Token,
    TokenStream,
    UnparsableError,
)

MAX_CHARACTERS: Final = 100_000
MAX_NESTING: Final = 100

RESERVED: Final = frozenset(
    {
        *("as", "break", "const", "continue", "else", "false", "for", "function", "if", "import", "in"),
        *("let", "loop", "package", "namespace", "null", "return", "true", "var", "void", "while"),
    }
)
LITERALS: Final = frozenset(
    {"true", "false", "null", lexer.NUMBER_FLOAT, lexer.NUMBER_INT, lexer.NUMBER_UINT, lexer.STRING, lexer.BYTES}
)
FIRST: Final = LITERALS | {"[", "{", "(", ".", "-", "!", IDENTIFIER}  #: the first tokens of expressions
SIGNED: Final = frozenset({lexer.NUMBER_INT, lexer.NUMBER_FLOAT})
OPERATORS: Final = {
    "||": (1, ast.OR),
    "&&": (2, ast.AND),
    "<": (3, ast.LESS),
    "<=": (3, ast.LESS_EQUAL),
    ">=": (3, ast.GREATER_EQUAL),
    ">": (3, ast.GREATER),
    "==": (3, ast.EQUAL),
    "!=": (3, ast.NOT_EQUAL),
    "in": (3, ast.IN),
    "+": (4, ast.ADD),
    "-": (4, ast.SUBTRACT),
    "*": (5, ast.MULTIPLY),
    "/": (5, ast.DIVIDE),
    "%": (5, ast.MODULO),
}
CONTINUES: Final = frozenset({*OPERATORS, "?", ".", "["})  #: the tokens after a complete operand
FIELD: Final = frozenset({IDENTIFIER, ESCAPED_IDENTIFIER})


def parse(text: str) -> Expression:
    if len(text) > MAX_CHARACTERS:
        size = f"expression code point size exceeds limit: size: {len(text)}, limit {MAX_CHARACTERS}"
        raise CompileError(text, [Issue(NOWHERE, size)])
    parser = _Parser(text)
    try:
        tree = parser.whole()
    except TooDeepError:
        raise CompileError(text, [Issue(NOWHERE, "max recursion depth exceeded")]) from None
    if parser.issues or tree is None:
        raise CompileError(text, parser.issues)
    return tree


@dataclass(slots=True)
class _Chain:
    """Operands of the same `&&` or `||`, which become a balanced tree."""

    function: str
    terms: list[Expression]
    offsets: list[int]


class _Parser:
    def __init__(self, text: str) -> None:
        self._stream = TokenStream(text)
        self._make = Builder()
        self._closers: list[frozenset[str]] = []  #: the tokens that may follow each open expression
        self.issues = self._stream.issues

    def whole(self) -> Expression | None:
        try:
            tree = self._expression(frozenset({END}))
            self._stream.need(END)
        except (UnparsableError, HopelessError):
            return None
        return tree

    def _recover(self, depth: int) -> None:
        """Continue after an invalid expression."""
        del self._closers[depth:]
        self._stream.recover(CONTINUES.union(*self._closers))

    # --- operators --------------------------------------------------------------------------------

    def _expression(self, closers: frozenset[str]) -> Expression:
        if len(self._closers) == MAX_NESTING:
            self.issues.append(Issue(NOWHERE, f"expression recursion limit exceeded: {MAX_NESTING}"))
            raise HopelessError
        self._closers.append(closers)
        choices: list[tuple[int, Expression, Expression]] = []
        value = self._operation()
        while question := self._stream.take_if("?"):
            self._closers[-1] = frozenset({":"})
            choices.append((question.offset, value, self._operation()))
            self._closers[-1] = closers
            try:
                self._stream.need(":", after=FIRST)
            except UnparsableError:
                self._recover(len(self._closers))
                break
            value = self._operation()
        self._closers.pop()
        for offset, condition, if_true in reversed(choices):
            value = self._make.call(offset, ast.CONDITIONAL, condition, if_true, value)
        return value

    def _operation(self) -> Expression:
        """Operands and binary operators, without the ternary one."""
        operands: list[Expression | _Chain] = [self._operand()]
        operators: list[Token] = []
        while self._stream.current.kind in OPERATORS:
            operator = self._stream.take()
            while operators and OPERATORS[operators[-1].kind][0] >= OPERATORS[operator.kind][0]:
                self._reduce(operands, operators.pop())
            operators.append(operator)
            operands.append(self._operand())
        while operators:
            self._reduce(operands, operators.pop())
        return self._finished(operands[0])

    def _reduce(self, operands: list[Expression | _Chain], operator: Token) -> None:
        function = OPERATORS[operator.kind][1]
        right = self._finished(operands.pop())
        left = operands.pop()
        if operator.kind not in ("&&", "||"):
            operands.append(self._make.call(operator.offset, function, self._finished(left), right))
        elif isinstance(left, _Chain) and left.function == function:
            left.terms.append(right)
            left.offsets.append(operator.offset)
            operands.append(left)
        else:
            operands.append(_Chain(function, [self._finished(left), right], [operator.offset]))

    def _finished(self, operand: Expression | _Chain) -> Expression:
        return self._balanced(operand, 0, len(operand.offsets) - 1) if isinstance(operand, _Chain) else operand

    def _balanced(self, chain: _Chain, low: int, high: int) -> Expression:
        middle = (low + high + 1) // 2
        left = chain.terms[middle] if middle == low else self._balanced(chain, low, middle - 1)
        right = chain.terms[middle + 1] if middle == high else self._balanced(chain, middle + 1, high)
        return self._make.call(chain.offsets[middle], chain.function, left, right)

    def _operand(self) -> Expression:
        depth = len(self._closers)
        operand: Expression | None = None
        while True:
            try:
                return self._unary() if operand is None else self._members(operand)
            except UnparsableError:
                self._recover(depth)
                operand = self._make.literal(0, None)

    def _unary(self) -> Expression:
        self._stream.need_one_of(FIRST)
        first = self._stream.current
        if first.kind == "!":
            return self._negated(first, ast.NOT)
        if first.kind == "-" and self._stream.ahead(1).kind not in SIGNED:
            return self._negated(first, ast.NEGATE)
        return self._members(self._primary())

    def _negated(self, first: Token, function: str) -> Expression:
        last, count = first, 0
        while self._stream.current.kind == first.kind:
            last = self._stream.take()
            count += 1
        following = self._stream.current.kind
        if following not in FIRST or following in ("-", "!"):
            signed = first.kind == "!" and following == "-" and self._stream.ahead(1).kind in SIGNED
            if first.kind == "-" or (following == "-" and not signed):
                raise self._stream.dead_end(last if first.kind == "-" else self._stream.take())
            if not signed:
                raise self._stream.unwanted(FIRST)
        operand = self._members(self._primary())
        return self._make.call(first.offset, function, operand) if count % 2 else operand

    # --- members ----------------------------------------------------------------------------------

    def _members(self, operand: Expression) -> Expression:
        while True:
            if self._stream.current.kind == ".":
                operand = self._member(operand)
            elif self._stream.current.kind == "[":
                operand = self._index(operand)
            else:
                return operand

    def _member(self, operand: Expression) -> Expression:
        dot = self._stream.take()
        optional = self._stream.take_if("?")
        if optional:
            self._stream.need_one_of(FIELD)
        elif self._stream.current.kind not in FIELD:
            raise self._stream.dead_end(dot)
        name = self._stream.take()
        if optional:
            field = self._make.literal(name.offset, self._field(name))
            return self._make.call(dot.offset, ast.OPTIONAL_SELECT, operand, field)
        if name.kind == IDENTIFIER and self._stream.current.kind == "(":
            return self._call(operand, name.text)
        return self._make.select(dot.offset, operand, self._field(name))

    def _field(self, name: Token) -> str:
        if name.kind == ESCAPED_IDENTIFIER:
            self.issues.append(Issue(name.offset, "unsupported syntax: '`'"))
        return name.text

    def _index(self, operand: Expression) -> Expression:
        bracket = self._stream.take()
        self._stream.need_one_of(FIRST | {"?"})
        optional = self._stream.take_if("?")
        index = self._expression(frozenset({"]"}))
        self._stream.need("]", after=CONTINUES | self._closers[-1])
        return self._make.call(bracket.offset, ast.OPTIONAL_INDEX if optional else ast.INDEX, operand, index)

    def _call(self, target: Expression | None, function: str) -> Expression:
        bracket = self._stream.take()
        arguments = self._arguments()
        try:
            expanded = macros.expand(self._make, bracket.offset, target, function, arguments)
        except macros.MacroError as error:
            self.issues.append(Issue(error.offset, error.message))
            return self._make.literal(bracket.offset, None)
        if expanded is not None:
            return expanded
        if target is None:
            return self._make.call(bracket.offset, function, *arguments)
        return self._make.member_call(bracket.offset, target, function, *arguments)

    def _arguments(self) -> list[Expression]:
        arguments: list[Expression] = []
        self._stream.need_one_of(FIRST | {")"})
        if self._stream.take_if(")"):
            return arguments
        arguments.append(self._expression(frozenset({",", ")"})))
        while self._stream.take_if(","):
            arguments.append(self._expression(frozenset({",", ")"})))
        self._stream.need(")", after=CONTINUES | self._closers[-1])
        return arguments

    # --- operands ---------------------------------------------------------------------------------

    def _primary(self) -> Expression:
        kind = self._stream.current.kind
        if kind == "(":
            self._stream.take()
            inner = self._expression(frozenset({")"}))
            self._stream.need(")", after=CONTINUES | self._closers[-1])
            return inner
        if kind == "[":
            return self._list()
        if kind == "{":
            return self._map()
        if kind in (IDENTIFIER, "."):
            return self._named()
        return self._literal()

    def _named(self) -> Expression:
        """A variable, a call, or a message."""
        dot = self._stream.take_if(".")
        if self._stream.current.kind != IDENTIFIER:
            raise self._stream.dead_end(dot or self._stream.current)
        message = self._message(dot)
        if message is not None:
            return message
        name = self._stream.take()
        if name.text in RESERVED:
            start = dot.offset if dot else name.offset
            self.issues.append(Issue(start, f"reserved identifier: {name.text}"))
        full = f".{name.text}" if dot else name.text
        return self._call(None, full) if self._stream.current.kind == "(" else self._make.identifier(name.offset, full)

    def _message(self, dot: Token | None) -> Expression | None:
        length = 1
        while self._stream.ahead(length).kind == "." and self._stream.ahead(length + 1).kind == IDENTIFIER:
            length += 2
        if self._stream.ahead(length).kind != "{":
            return None
        name = ("." if dot else "") + "".join(self._stream.take().text for _ in range(length))
        brace = self._stream.take()
        fields: list[ast.FieldEntry] = []
        self._stream.need_one_of(FIELD | {"}", ",", "?"})
        while self._stream.current.kind in FIELD | {"?"}:
            optional = self._stream.take_if("?") is not None
            self._stream.need_one_of(FIELD)
            field = self._stream.take()
            colon = self._stream.need(":", after=FIRST)
            value = self._expression(frozenset({",", "}"}))
            fields.append(self._make.field_entry(colon.offset, self._field(field), value, optional))
            if not self._separated("}"):
                break
        self._close("}")
        return self._make.struct(brace.offset, name, fields)

    def _list(self) -> Expression:
        bracket = self._stream.take()
        elements: list[Expression] = []
        optional: list[int] = []
        self._stream.need_one_of(FIRST | {"]", ",", "?"})
        while self._stream.current.kind in FIRST | {"?"}:
            if self._stream.take_if("?"):
                optional.append(len(elements))
            elements.append(self._expression(frozenset({",", "]"})))
            if not self._separated("]"):
                break
        self._close("]")
        return self._make.list_literal(bracket.offset, elements, optional)

    def _map(self) -> Expression:
        brace = self._stream.take()
        entries: list[ast.MapEntry] = []
        self._stream.need_one_of(FIRST | {"}", ",", "?"})
        while self._stream.current.kind in FIRST | {"?"}:
            optional = self._stream.take_if("?") is not None
            key = self._expression(frozenset({":"}))
            colon = self._stream.need(":", after=FIRST)
            value = self._expression(frozenset({",", "}"}))
            entries.append(self._make.entry(colon.offset, key, value, optional))
            if not self._separated("}"):
                break
        self._close("}")
        return self._make.map_literal(brace.offset, entries)

    def _separated(self, close: str) -> bool:
        """After an element: whether another one follows.  It does not after a token too many."""
        fits = self._stream.current.kind in (close, ",")
        self._stream.need_one_of(frozenset({close, ","}))
        if (
            fits
            and self._stream.current.kind == ","
            and self._stream.ahead(1).kind in FIRST | {"?", ESCAPED_IDENTIFIER}
        ):
            self._stream.take()
            return True
        return False

    def _close(self, close: str) -> None:
        self._stream.take_if(",")
        self._stream.need(close, after=CONTINUES | self._closers[-1])

    def _literal(self) -> Expression:
        sign = self._stream.take_if("-")
        token = self._stream.take()
        start = sign.offset if sign else token.offset
        try:
            value = _literal_value(token.kind, ("-" if sign else "") + token.text)
        except ValueError as error:
            self.issues.append(Issue(start, str(error)))
            value = None
        return self._make.literal(start, value)


def _literal_value(kind: str, text: str) -> ast.LiteralValue:
    match kind:
        case "true" | "false":
            return kind == "true"
        case lexer.NUMBER_INT:
            return literals.integer(text)
        case lexer.NUMBER_UINT:
            return literals.unsigned(text)
        case lexer.NUMBER_FLOAT:
            return literals.double(text)
        case lexer.STRING:
            return literals.string(text)
        case lexer.BYTES:
            return literals.byte_string(text)
        case _:
            return None
