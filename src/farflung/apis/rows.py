"""Rules of kinds as tables: rows of a field and its rules, compiled into one function.

    LEASE = Validation(
        Pointer("spec.leaseDurationSeconds", Minimum(1, POSITIVE)),
        Required("spec.holderIdentity", Format(names.dns_subdomain)),
        Each("spec.rules", Required("subjects", detail="subjects must contain at least one value")),
    )
    LEASE(obj)  →  errors, in the order of the rows

A row names a field by its path.  The row's class decides what an absent field means, as its Go type does:

    Required         an absent or empty field is an error; RequiredPointer: only an absent one is
    Optional         an absent or empty field is not checked (`if len(x) > 0`)
    Pointer          an absent field is not checked (`if x != nil`)
    Always           an absent field is checked as its zero value

and more rows follow inside a row:

    Struct           an object, if it is present
    Each             every entry of a list, `path[0]`, `path[1]` …
    When, Unless     rows that apply if a field has, or has not, one of the values
    IfPresent        rows that apply if a field is present; IfAbsent: if it is absent
    Where            rows that apply if a function of the object returns true

The rules of a field are `Minimum`, `Maximum`, `Range`, `Enum`, `Format`, `Unique`, `ForbiddenField`, `MaxItems`,
`InvalidIf`, `FirstError`, or any function `(value, field, errors)`: a check of validation.py, another `Table`, a
hand-written function for what no row says.  A rule reports in Kubernetes' words.  A `Check` row calls a function with
the whole object of its table, a `ContextCheck` row also with the context that the table was called with, a
`ChangeCheck` row with the new and the old object.

    Table            a check `(value, path, errors)` of a part that several kinds share, such as a volume
    Validation       the `validate` or `validate_status` of a kind
    Defaults         the `default` of a kind, in rows of `Default`, `Each`, `Struct`, `When` and functions `(obj)`

Rows are compiled into Python source on the first call, because a call for each row would cost more than the checks.
Paths of fields are formatted only for errors.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, Final, Protocol

from farflung.apis.validation import IMMUTABLE, NOT_NEGATIVE, POSITIVE, Errors
from farflung.machinery import names
from farflung.machinery.errors import Obj, duplicate, field_forbidden, invalid_value, not_supported, required, too_many

CheckFunction = Callable[[Any, str, Errors], object]  #: (value, field, errors); its result is ignored
ITSELF: Final = "."  #: `named` of a row whose errors name the object that has the field


# --- Source of the compiled functions -------------------------------------------------------------


class FunctionSource:
    """The text of a function, and the objects that it refers to."""

    def __init__(self, *, defaults: bool) -> None:
        self.defaults = defaults
        self.objects: dict[str, Any] = {
            "EMPTY": {}, "invalid_value": invalid_value, "not_supported": not_supported, "required": required,
            "field_forbidden": field_forbidden, "too_many": too_many, "duplicate": duplicate,
        }  # fmt: skip
        self._lines: list[str] = []
        self._indent = 1
        self._variables = 0
        self._loops: list[tuple[int, int]] = []  #: line and indentation of the enclosing loops
        self._structs: dict[tuple[str, str], str] = {}  #: variable and member → variable that holds the member

    def line(self, text: str) -> None:
        self._lines.append("    " * self._indent + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Variables that are assigned inside are unknown after it."""
        known, start = dict(self._structs), len(self._lines)
        self.line(head)
        self._indent += 1
        yield
        if len(self._lines) == start + 1:
            self.line("pass")
        self._indent -= 1
        self._structs = known

    @contextmanager
    def loop(self, head: str) -> Iterator[None]:
        self._loops.append((len(self._lines), self._indent))
        with self.block(head):
            yield
        self._loops.pop()

    def before_loop(self, text: str) -> None:
        """Adds a line before the innermost loop."""
        at, indent = self._loops[-1]
        self._lines.insert(at, "    " * indent + text)

    def variable(self) -> str:
        self._variables += 1
        return f"v{self._variables}"

    def name(self, value: Any) -> str:
        """How the function refers to an object."""
        name = f"o{len(self.objects)}"
        self.objects[name] = value
        return name

    def holder(self, variable: str, path: str, *, create: bool = False) -> tuple[str, str]:
        """The variable of the object that holds a field, and the field's last name."""
        *parents, last = path.split(".")
        for parent in parents:
            known = self._structs.get((variable, parent))
            if known is None:
                known = self.variable()
                self.line(
                    f'{known} = {variable}.setdefault("{parent}", {{}})'
                    if create
                    else f'{known} = {variable}.get("{parent}") or EMPTY'
                )
                if create or not self.defaults:
                    self._structs[variable, parent] = known
            variable = known
        return variable, last

    def read(self, variable: str, path: str) -> str:
        """A new variable with the value of a field, None if it is absent."""
        holder, last = self.holder(variable, path)
        value = self.variable()
        self.line(f'{value} = {holder}.get("{last}")')
        return value

    def call(self, function: Callable[..., object], value: str, field: str) -> None:
        arguments = value if self.defaults else f'{value}, f"{field}", errors'
        self.line(f"{self.name(function)}({arguments})")

    def function(self, parameters: str, last_line: str = "") -> Callable[..., Any]:
        if last_line:
            self.line(last_line)
        source = "\n".join([f"def compiled({parameters}):", *self._lines, "    pass"])
        exec(source, self.objects)  # noqa: S102 - made of the rows of a kind, which are part of this program
        compiled: Callable[..., Any] = self.objects["compiled"]
        return compiled


# --- Rules of one field ---------------------------------------------------------------------------


class Rule(Protocol):
    def write(self, source: FunctionSource, value: str, field: str) -> None:
        """Adds the lines that check a variable; `field` is the text of an f-string."""


class Row(Protocol):
    def write_row(self, source: FunctionSource, holder: str, prefix: str) -> None:
        """Adds the lines that check a field of an object; `prefix` is the f-string text before the field's path."""


class InvalidIf:
    """`Invalid value`, where the Python expression with `{v}`, or a function of the value, is true."""

    def __init__(self, condition: str | Callable[[Any], object], detail: str) -> None:
        self._condition = condition
        self._detail = detail

    def write(self, source: FunctionSource, value: str, field: str) -> None:
        condition = self._condition if isinstance(self._condition, str) else f"{source.name(self._condition)}({{v}})"
        with source.block(f"if {condition.format(v=value)}:"):
            source.line(f'errors.append(invalid_value(f"{field}", {value}, {self._detail!r}))')


def Minimum(least: int, detail: str) -> InvalidIf:
    return InvalidIf(f"{{v}} < {least}", detail)


def Maximum(most: int, detail: str) -> InvalidIf:
    return InvalidIf(f"{{v}} > {most}", detail)


def Range(low: int, high: int, detail: str = "") -> InvalidIf:
    return InvalidIf(f"not {low} <= {{v}} <= {high}", detail or names.between(low, high))


def Refused(detail: str) -> InvalidIf:
    """`Invalid value`, whatever the value is."""
    return InvalidIf("True", detail)


NotNegative: Final = Minimum(0, NOT_NEGATIVE)
Positive: Final = Minimum(1, POSITIVE)


class Enum:
    """`Unsupported value`, unless the value is one of the choices."""

    def __init__(self, *choices: str) -> None:
        self._choices = choices

    def write(self, source: FunctionSource, value: str, field: str) -> None:
        choices = source.name(self._choices)
        with source.block(f"if {value} not in {choices}:"):
            source.line(f'errors.append(not_supported(f"{field}", {value}, {choices}))')


class Format:
    """What a check of names reports about a text.  The rules apply to a text that passes."""

    def __init__(self, check: names.Check, *rules: Rule | Callable[..., object]) -> None:
        self._check = check
        self._rules = rules

    def write(self, source: FunctionSource, value: str, field: str) -> None:
        messages = source.variable()
        source.line(f"{messages} = {source.name(self._check)}({value})")
        with source.block(f"for message in {messages}:"):
            source.line(f'errors.append(invalid_value(f"{field}", {value}, message))')
        if self._rules:
            with source.block(f"if not {messages}:"):
                _apply(self._rules, source, value, field)


class ForbiddenField:
    """The field must not be set."""

    def __init__(self, detail: str) -> None:
        self._detail = detail

    def write(self, source: FunctionSource, value: str, field: str) -> None:
        source.line(f'errors.append(field_forbidden(f"{field}", {self._detail!r}))')


class Unique:
    """`Duplicate value`, if an earlier entry of the enclosing Each has the same value, or the same texts as members."""

    def __init__(self, *members: str, detail: str = "") -> None:
        self._members = members
        self._detail = detail

    def write(self, source: FunctionSource, value: str, field: str) -> None:
        seen, key = source.variable(), value
        source.before_loop(f"{seen} = set()")
        if self._members:
            key = source.variable()
            source.line(f"{key} = " + ", ".join(f'{value}.get("{member}", "")' for member in self._members))
        with source.block(f"if {key} in {seen}:"):
            source.line(f'errors.append(duplicate(f"{field}", {value}, {self._detail!r}))')
        source.line(f"{seen}.add({key})")


class FirstError:
    """Rules of which each applies only if those before it report nothing."""

    def __init__(self, *rules: Rule | Callable[..., object]) -> None:
        self._rules = rules

    def write(self, source: FunctionSource, value: str, field: str) -> None:
        before = source.variable()
        source.line(f"{before} = len(errors)")
        with ExitStack() as blocks:
            for rule in self._rules:
                _apply((rule,), source, value, field)
                if rule is not self._rules[-1]:
                    blocks.enter_context(source.block(f"if len(errors) == {before}:"))


class MaxItems:
    """`Too many`, if a list has more entries."""

    def __init__(self, most: int) -> None:
        self._most = most

    def write(self, source: FunctionSource, value: str, field: str) -> None:
        with source.block(f"if len({value}) > {self._most}:"):
            source.line(f'errors.append(too_many(f"{field}", len({value}), {self._most}))')


def _apply(
    rules: Collection[Rule | Row | Callable[..., object]], source: FunctionSource, value: str, field: str
) -> None:
    """Rules check the value, rows its members."""
    for rule in rules:
        if isinstance(rule, Table | Defaults):
            _apply(rule.rows, source, value, field)
        elif hasattr(rule, "write"):
            rule.write(source, value, field)
        elif hasattr(rule, "write_row"):
            rule.write_row(source, value, f"{field}.")
        else:
            assert callable(rule)
            source.call(rule, value, field)


# --- Rows -----------------------------------------------------------------------------------------


class _Field:
    checks_absent = True  #: whether the rules say anything about an absent field

    def __init__(
        self, path: str, *rules: Rule | Row | Callable[..., object], named: str = "", detail: str = ""
    ) -> None:
        """`named`: the path in errors, if it is another, or ITSELF.  `detail` of the error of an absent field."""
        self.path = path
        self._rules = rules
        self._named = named or path
        self._detail = detail

    def write_row(self, source: FunctionSource, holder: str, prefix: str) -> None:
        field = prefix.removesuffix(".") if self._named == ITSELF else f"{prefix}{self._named}"
        if self.checks_absent:
            self._write_value(source, source.read(holder, self.path), field)
            return
        parent, last = source.holder(holder, self.path)
        value = source.variable()
        with source.block(f'if "{last}" in {parent}:'):
            source.line(f'{value} = {parent}["{last}"]')
            self._write_value(source, value, field)

    def _write_value(self, source: FunctionSource, value: str, field: str) -> None:
        raise NotImplementedError

    def _rules_if(self, condition: str, source: FunctionSource, value: str, field: str) -> None:
        if self._rules:
            with source.block(condition):
                _apply(self._rules, source, value, field)

    def _required_if(self, condition: str, source: FunctionSource, field: str) -> None:
        with source.block(condition):
            source.line(f'errors.append(required(f"{field}", {self._detail!r}))')


class Required(_Field):
    def _write_value(self, source: FunctionSource, value: str, field: str) -> None:
        self._required_if(f"if not {value}:", source, field)
        self._rules_if("else:", source, value, field)


class RequiredPointer(_Field):
    def _write_value(self, source: FunctionSource, value: str, field: str) -> None:
        self._required_if(f"if {value} is None:", source, field)
        self._rules_if("else:", source, value, field)


class Optional(_Field):
    checks_absent = False

    def _write_value(self, source: FunctionSource, value: str, field: str) -> None:
        self._rules_if(f"if {value}:", source, value, field)


class Pointer(_Field):
    checks_absent = False

    def _write_value(self, source: FunctionSource, value: str, field: str) -> None:
        self._rules_if(f"if {value} is not None:", source, value, field)


Struct = Pointer  #: an object whose rules are rows


class Always(_Field):
    def __init__(self, path: str, *rules: Rule | Row | Callable[..., object], named: str = "", zero: Any = "") -> None:
        super().__init__(path, *rules, named=named)
        self._zero = zero

    def _write_value(self, source: FunctionSource, value: str, field: str) -> None:
        with source.block(f"if {value} is None:"):
            source.line(f"{value} = {self._zero!r}")
        _apply(self._rules, source, value, field)


class Each(_Field):
    """`indexed`: whether errors name the entry.  `most`: entries of a longer list are not checked."""

    checks_absent = False

    def __init__(
        self,
        path: str,
        *rules: Rule | Row | Callable[..., object],
        named: str = "",
        indexed: bool = True,
        most: int = 0,
    ) -> None:
        super().__init__(path, *rules, named=named)
        self._indexed = indexed
        self._most = most

    def _write_value(self, source: FunctionSource, value: str, field: str) -> None:
        entry, index = source.variable(), source.variable()
        head = f"for {index}, {entry} in enumerate({value}):"
        if source.defaults or not self._indexed:
            head = f"for {entry} in {value}:"
        if self._most:
            MaxItems(self._most).write(source, f"({value} or ())", field)
        allowed = f"elif {value}:" if self._most else f"if {value}:"
        with source.block(allowed), source.loop(head):
            _apply(self._rules, source, entry, f"{field}[{{{index}}}]" if self._indexed else field)


class When:
    """Rows that apply if a field has one of the values; an absent field has the value ""."""

    operators = ("==", "in")  #: of one value, of several ones

    def __init__(
        self, path: str, values: str | bool | tuple[str | None, ...], *rows: Row | Callable[..., object]
    ) -> None:
        self.path = path
        self._values: tuple[str | bool | None, ...] = values if isinstance(values, tuple) else (values,)
        self._rows = rows

    def write_row(self, source: FunctionSource, holder: str, prefix: str) -> None:
        parent, last = source.holder(holder, self.path)
        with source.block(f'if {parent}.get("{last}", "") {self.comparison()}:'):
            _write_rows(self._rows, source, holder, prefix)

    def comparison(self) -> str:
        one, several = self.operators
        return f"{one} {self._values[0]!r}" if len(self._values) == 1 else f"{several} {self._values!r}"


class Unless(When):
    operators = ("!=", "not in")


class IfPresent:
    """Rows that apply if a field is present."""

    operator = "is not"

    def __init__(self, path: str, *rows: Row | Callable[..., object]) -> None:
        self.path = path
        self._rows = rows

    def write_row(self, source: FunctionSource, holder: str, prefix: str) -> None:
        parent, last = source.holder(holder, self.path)
        with source.block(f'if {parent}.get("{last}") {self.operator} None:'):
            _write_rows(self._rows, source, holder, prefix)


class IfAbsent(IfPresent):
    operator = "is"


class Where:
    """Rows that apply if a function of the table's object returns true, and others if it does not."""

    def __init__(
        self,
        condition: Callable[[Obj], bool],
        *rows: Row | Callable[..., object],
        otherwise: Collection[Row | Callable[..., object]] = (),
    ) -> None:
        self._condition = condition
        self._rows = rows
        self._otherwise = otherwise

    def write_row(self, source: FunctionSource, holder: str, prefix: str) -> None:
        with source.block(f"if {source.name(self._condition)}({holder}):"):
            _write_rows(self._rows, source, holder, prefix)
        if self._otherwise:
            with source.block("else:"):
                _write_rows(self._otherwise, source, holder, prefix)


class Check:
    """A function that checks the object of the table: `(object, path, errors)`."""

    def __init__(self, function: CheckFunction) -> None:
        self._function = function

    def write_row(self, source: FunctionSource, holder: str, prefix: str) -> None:
        source.call(self._function, holder, prefix.removesuffix("."))


class ContextCheck:
    """A function that also gets the context of the call: `(object, path, errors, context)`."""

    def __init__(self, function: Callable[[Any, str, Errors, Any], None]) -> None:
        self._function = function

    def write_row(self, source: FunctionSource, holder: str, prefix: str) -> None:
        path = prefix.removesuffix(".")
        source.line(f'{source.name(self._function)}({holder}, f"{path}", errors, context)')


class ChangeCheck:
    """A function that compares the objects of a Validation: `(new, old, errors)`."""

    def __init__(self, function: Callable[[Obj, Obj, Errors], None]) -> None:
        self._function = function

    def write_row(self, source: FunctionSource, holder: str, prefix: str) -> None:
        assert not prefix, "only a whole object has an old one"
        source.line(f"{source.name(self._function)}({holder}, old, errors)")


class Default:
    """Sets a field that is absent or null; with `empty`, also one that is empty.  Structs around it are created."""

    def __init__(self, path: str, value: Any, *, empty: bool = False) -> None:
        self.path = path
        self._value = value
        self._empty = empty

    def write_row(self, source: FunctionSource, holder: str, prefix: str) -> None:
        parent, last = source.holder(holder, self.path, create=True)
        condition = f'not {parent}.get("{last}")' if self._empty else f'{parent}.get("{last}") is None'
        with source.block(f"if {condition}:"):
            source.line(f'{parent}["{last}"] = {self._value!r}')


def _write_rows(
    rows: Collection[Row | Callable[..., object]], source: FunctionSource, holder: str, prefix: str
) -> None:
    for row in rows:
        if isinstance(row, Table | Defaults):
            _write_rows(row.rows, source, holder, prefix)
        elif hasattr(row, "write_row"):
            row.write_row(source, holder, prefix)
        else:
            assert callable(row)
            source.call(row, holder, prefix.removesuffix("."))


# --- Tables ---------------------------------------------------------------------------------------


class _Compiled:
    def __init__(self, *rows: Row | Callable[..., object]) -> None:
        self.rows = rows
        self._function: Callable[..., Any] | None = None

    @property
    def function(self) -> Callable[..., Any]:
        if self._function is None:
            self._function = self._compile()
        return self._function

    def _compile(self) -> Callable[..., Any]:
        raise NotImplementedError


class Table(_Compiled):
    def __call__(self, value: Obj, path: str, errors: Errors, context: Any = None) -> None:
        (self._function or self.function)(value, path, errors, context)

    def _compile(self) -> Callable[..., Any]:
        source = FunctionSource(defaults=False)
        _write_rows(self.rows, source, "obj", "{path}.")
        return source.function("obj, path, errors, context")


class Validation(_Compiled):
    """Called with an object, or with the new and the old one, which only `ChangeCheck` rows read."""

    def __call__(self, obj: Obj, old: Obj | None = None) -> Errors:
        errors: Errors = (self._function or self.function)(obj, old)
        return errors

    def _compile(self) -> Callable[..., Any]:
        source = FunctionSource(defaults=False)
        source.line("errors = []")
        _write_rows(self.rows, source, "obj", "")
        return source.function("obj, old", "return errors")


class Defaults(_Compiled):
    def __call__(self, obj: Obj) -> None:
        (self._function or self.function)(obj)

    def _compile(self) -> Callable[..., Any]:
        source = FunctionSource(defaults=True)
        _write_rows(self.rows, source, "obj", "")
        return source.function("obj")


def not_negative(*paths: str) -> Table:
    """Numbers that are not negative, if they are present."""
    return Table(*(Pointer(path, NotNegative) for path in paths))


def immutable(*paths: str, zero: Any = None, detail: str = IMMUTABLE) -> Callable[[Obj, Obj], Errors]:
    """A `validate_update` under which these fields keep their values; an absent one has the value `zero`."""
    fields = [(path, path.split(".")) for path in paths]

    def value(obj: Obj, members: list[str]) -> Any:
        found: Any = obj
        for member in members:
            found = (found or {}).get(member)
        return zero if found is None else found

    def check(new: Obj, old: Obj) -> Errors:
        return [
            invalid_value(path, after, detail)
            for path, members in fields
            if (after := value(new, members)) != value(old, members)
        ]

    return check


def new_status(status: Mapping[str, Any]) -> Callable[[Obj], None]:
    """A `prepare_create` that replaces the status."""

    def prepare(obj: Obj) -> None:
        obj["status"] = dict(status)

    return prepare
