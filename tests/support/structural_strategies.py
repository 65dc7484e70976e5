"""Random structural schemas, and objects that have a chance to fit them."""

from typing import Any

from hypothesis import strategies as st

NAMES = st.sampled_from(["a", "b", "c", "apiVersion"])
TEXTS = st.sampled_from(["", "x", "xy", "xyz", "é", "1"])
WHOLE = st.integers(-3, 7)
NUMBERS = WHOLE | st.sampled_from([0.5, 1.0, 2.5, -1.5])
SCALARS = st.none() | st.booleans() | TEXTS | NUMBERS
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=12
)


def keywords(**optional: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Any of these keywords; few of them at a time."""
    return st.fixed_dictionaries({}, optional=optional).map(lambda found: dict(list(found.items())[:3]))


STRING_LIMITS = keywords(
    minLength=st.integers(0, 2),
    maxLength=st.integers(0, 3),
    enum=st.lists(TEXTS, min_size=1, max_size=3),
    pattern=st.sampled_from(["^x", "y$", "z"]),
)
NUMBER_LIMITS = keywords(
    minimum=WHOLE,
    maximum=WHOLE,
    exclusiveMinimum=st.booleans(),
    exclusiveMaximum=st.booleans(),
    multipleOf=st.integers(1, 3),
    enum=st.lists(WHOLE, min_size=1, max_size=3),
)
LIST_LIMITS = keywords(minItems=st.integers(0, 2), maxItems=st.integers(0, 2))
OBJECT_LIMITS = keywords(
    minProperties=st.integers(0, 2),
    maxProperties=st.integers(0, 2),
    required=st.lists(NAMES, min_size=1, max_size=2, unique=True),
)
LIMITS = STRING_LIMITS | NUMBER_LIMITS | LIST_LIMITS | OBJECT_LIMITS


def merged(*parts: dict[str, Any]) -> dict[str, Any]:
    return {key: value for part in parts for key, value in part.items()}


@st.composite
def junctors(draw: st.DrawFn) -> dict[str, Any]:
    """Alternatives that say nothing of types."""
    found: dict[str, Any] = {}
    if draw(st.integers(0, 3)):
        return found
    branches = LIMITS | st.dictionaries(NAMES, LIMITS, max_size=2).map(lambda fields: {"properties": fields})
    for junctor in draw(st.lists(st.sampled_from(["anyOf", "oneOf", "allOf", "not"]), max_size=2, unique=True)):
        found[junctor] = draw(branches) if junctor == "not" else draw(st.lists(branches, min_size=1, max_size=3))
    return found


@st.composite
def schemas(draw: st.DrawFn, depth: int = 3) -> dict[str, Any]:
    kinds = ["string", "integer", "number", "boolean", "int-or-string", "anything"]
    kind = draw(st.sampled_from([*kinds, "object", "object", "map", "array"] if depth else kinds))
    common = draw(keywords(nullable=st.booleans())) | draw(junctors())
    match kind:
        case "string":
            schema = merged({"type": kind}, draw(STRING_LIMITS), common)
        case "integer" | "number":
            schema = merged({"type": kind}, draw(NUMBER_LIMITS), common)
        case "boolean":
            schema = merged({"type": kind}, common)
        case "int-or-string":
            schema = merged({"x-kubernetes-int-or-string": True}, common)
        case "anything":
            schema = {"x-kubernetes-preserve-unknown-fields": True}
        case "array":
            schema = merged({"type": kind, "items": draw(schemas(depth - 1))}, draw(LIST_LIMITS), common)
        case "map":
            values = draw(schemas(depth - 1))
            schema = merged({"type": "object", "additionalProperties": values}, draw(OBJECT_LIMITS), common)
        case _:
            fields = draw(st.dictionaries(NAMES, schemas(depth - 1), max_size=3))
            kept = draw(st.sampled_from([{}, {}, {"x-kubernetes-preserve-unknown-fields": True}]))
            schema = merged({"type": "object", "properties": fields}, kept, draw(OBJECT_LIMITS), common)
    if not draw(st.integers(0, 3)):
        default = draw(VALUES)
        schema |= {"default": default} if default is not None else {}
    return schema


def around(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of a whole resource with this one inside."""
    return {"type": "object", "properties": {"spec": schema}}


@st.composite
def values(draw: st.DrawFn, schema: dict[str, Any]) -> Any:
    """What nearly fits: mostly of the right types, and now and then anything at all."""
    if not draw(st.integers(0, 9)):
        return draw(VALUES)
    match schema.get("type"):
        case "string":
            return draw(TEXTS)
        case "integer":
            return draw(WHOLE)
        case "number":
            return draw(NUMBERS)
        case "boolean":
            return draw(st.booleans())
        case "array":
            return [draw(values(schema["items"])) for _ in range(draw(st.integers(0, 3)))]
        case "object":
            fields = schema.get("properties", {})
            rest = schema.get("additionalProperties", {})
            names = draw(st.lists(st.sampled_from(["x", *fields]) | NAMES, max_size=4, unique=True))
            return {name: draw(values(fields.get(name, rest))) for name in names}
        case _:
            return draw(VALUES)


@st.composite
def cases(draw: st.DrawFn) -> tuple[dict[str, Any], Any]:
    """A schema and a value."""
    schema = draw(schemas())
    return schema, draw(values(schema))
