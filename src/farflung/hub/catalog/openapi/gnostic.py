"""Documents as the protobuf messages of gnostic's OpenAPIv2.proto and OpenAPIv3.proto.

A message is a list of fields: JSON key, number and type.  The type is a scalar, `any` (YAML in a message), the name of
another message, or one of these in brackets if the field repeats.  Other keys follow the rule for keys with `x-`, or
the rule `*`; both make repeated pairs of a name and a value.  If a message only wraps one of several types, a function
selects number and type.  Keys without a rule are omitted.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import orjson

from farflung.machinery.codec.protobuf_bytes import DELIMITED, FIXED64, VARINT, delimited, tag_of, varint

Rule = str | Callable[[Any], str]
Messages = Mapping[str, Rule]

FIRST, SECOND = (
    tag_of(1, DELIMITED),
    tag_of(2, DELIMITED),
)  #: a name and its value; `any` has its YAML in the second field


class MessageField(NamedTuple):
    number: int
    type: str
    repeated: bool


class Fields(NamedTuple):
    named: Mapping[str, MessageField]
    extensions: MessageField | None
    others: MessageField | None


class Encoder:
    """Writes the messages of one table."""

    __slots__ = ("_rules",)

    def __init__(self, messages: Messages) -> None:
        self._rules = {name: rule if callable(rule) else fields_of(rule) for name, rule in messages.items()}

    def encode(self, message: str, value: Any) -> bytes:
        rule = self._rules[message]
        if callable(rule):
            chosen = rule(value)
            return self._field(parsed(chosen), value) if chosen else b""
        named, extensions, others = rule
        parts: list[bytes] = []
        for key, item in value.items():
            if (field := named.get(key)) is not None:
                parts.append(self._field(field, item))
            elif (pair := extensions if extensions and key.startswith("x-") else others) is not None:
                parts.append(delimited(tag_of(pair.number, DELIMITED), self._pair(pair.type, key, item)))
        return b"".join(parts)

    def _field(self, field: MessageField, value: Any) -> bytes:
        if field.repeated:
            return b"".join([self._one(field, item) for item in value])
        return self._one(field, value)

    def _one(self, field: MessageField, value: Any) -> bytes:
        match field.type:
            case "bool" | "int64":
                return tag_of(field.number, VARINT) + varint(int(value))
            case "double":
                return tag_of(field.number, FIXED64) + struct.pack("<d", value)
            case _:
                return delimited(tag_of(field.number, DELIMITED), self._content(field.type, value))

    def _content(self, type_: str, value: Any) -> bytes:
        if type_ == "string":
            return str(value).encode()
        if type_ == "any":
            return delimited(SECOND, orjson.dumps(value) + b"\n")
        return self.encode(type_, value)

    def _pair(self, type_: str, name: str, value: Any) -> bytes:
        return delimited(FIRST, name.encode()) + delimited(SECOND, self._content(type_, value))


def fields_of(rule: str) -> Fields:
    named = {key: parsed(rest) for key, _, rest in (field.partition(":") for field in rule.split())}
    extensions, others = named.pop("x-", None), named.pop("*", None)
    return Fields(named, extensions, others)


def parsed(text: str) -> MessageField:
    """`1:[string]`"""
    number, _, type_ = text.partition(":")
    return MessageField(int(number), type_.strip("[]"), type_.startswith("["))


# --- version 2 ------------------------------------------------------------------------------------

V2: Final[Messages] = {
    "Document": """
        swagger:1:string info:2:Info host:3:string basePath:4:string schemes:5:[string] consumes:6:[string]
        produces:7:[string] paths:8:Paths definitions:9:Schemas parameters:10:Parameters x-:16:any
    """,
    "Info": "title:1:string version:2:string description:3:string x-:7:any",
    "Paths": "x-:1:any *:2:PathItem",
    "Schemas": "*:1:Schema",
    "Parameters": "*:1:Parameter",
    "PathItem": """
        $ref:1:string get:2:Operation put:3:Operation post:4:Operation delete:5:Operation options:6:Operation
        head:7:Operation patch:8:Operation parameters:9:[ParametersItem] x-:10:any
    """,
    "Operation": """
        tags:1:[string] summary:2:string description:3:string operationId:5:string produces:6:[string]
        consumes:7:[string] parameters:8:[ParametersItem] responses:9:Responses schemes:10:[string]
        deprecated:11:bool x-:13:any
    """,
    "ParametersItem": lambda value: "2:Reference" if "$ref" in value else "1:Parameter",
    "Reference": "$ref:1:string description:2:string",
    "Parameter": lambda value: "1:BodyParameter" if value["in"] == "body" else "2:OtherParameter",
    "BodyParameter": "description:1:string name:2:string in:3:string required:4:bool schema:5:Schema x-:6:any",
    "OtherParameter": lambda value: "3:QueryParameter" if value["in"] == "query" else "4:PathParameter",
    "QueryParameter": """
        required:1:bool in:2:string description:3:string name:4:string type:6:string format:7:string
        uniqueItems:20:bool x-:23:any
    """,
    "PathParameter": """
        required:1:bool in:2:string description:3:string name:4:string type:5:string format:6:string
        uniqueItems:19:bool x-:22:any
    """,
    "Responses": "*:1:ResponseValue x-:2:any",
    "ResponseValue": lambda value: "2:Reference" if "$ref" in value else "1:Response",
    "Response": "description:1:string schema:2:SchemaItem x-:5:any",
    "SchemaItem": lambda _: "1:Schema",
    "Schema": """
        $ref:1:string format:2:string title:3:string description:4:string default:5:any multipleOf:6:double
        maximum:7:double exclusiveMaximum:8:bool minimum:9:double exclusiveMinimum:10:bool maxLength:11:int64
        minLength:12:int64 pattern:13:string maxItems:14:int64 minItems:15:int64 uniqueItems:16:bool
        maxProperties:17:int64 minProperties:18:int64 required:19:[string] enum:20:[any]
        additionalProperties:21:AdditionalProperties type:22:Types items:23:Items allOf:24:[Schema]
        properties:25:Schemas readOnly:27:bool example:30:any x-:31:any
    """,
    "AdditionalProperties": lambda value: "2:bool" if isinstance(value, bool) else "1:Schema",
    "Types": lambda _: "1:string",
    "Items": lambda _: "1:Schema",
}

# --- version 3 ------------------------------------------------------------------------------------


def default_value(value: Any) -> str:
    """The messages have only scalar defaults."""
    match value:
        case bool():
            return "2:bool"
        case int() | float():
            return "1:double"
        case str():
            return "3:string"
        case _:
            return ""


V3: Final[Messages] = {
    "Document": "openapi:1:string info:2:Info paths:4:Paths components:5:Components x-:9:any",
    "Info": "title:1:string description:2:string version:6:string x-:7:any",
    "Paths": "*:1:PathItem x-:2:any",
    "Components": "schemas:1:Schemas x-:10:any",
    "Schemas": "*:1:SchemaOrReference",
    "PathItem": """
        $ref:1:string summary:2:string description:3:string get:4:Operation put:5:Operation post:6:Operation
        delete:7:Operation options:8:Operation head:9:Operation patch:10:Operation trace:11:Operation
        parameters:13:[ParameterOrReference] x-:14:any
    """,
    "Operation": """
        tags:1:[string] summary:2:string description:3:string operationId:5:string
        parameters:6:[ParameterOrReference] requestBody:7:RequestBodyOrReference responses:8:Responses
        deprecated:10:bool x-:13:any
    """,
    "ParameterOrReference": lambda value: "2:Reference" if "$ref" in value else "1:Parameter",
    "Reference": "$ref:1:string summary:2:string description:3:string",
    "Parameter": """
        name:1:string in:2:string description:3:string required:4:bool deprecated:5:bool
        schema:10:SchemaOrReference x-:14:any
    """,
    "RequestBodyOrReference": lambda value: "2:Reference" if "$ref" in value else "1:RequestBody",
    "RequestBody": "description:1:string content:2:MediaTypes required:3:bool x-:4:any",
    "MediaTypes": "*:1:MediaType",
    "MediaType": "schema:1:SchemaOrReference x-:5:any",
    "Responses": "default:1:ResponseOrReference *:2:ResponseOrReference x-:3:any",
    "ResponseOrReference": lambda value: "2:Reference" if "$ref" in value else "1:Response",
    "Response": "description:1:string content:3:MediaTypes x-:5:any",
    "SchemaOrReference": lambda value: "2:Reference" if "$ref" in value else "1:Schema",
    "Schema": """
        nullable:1:bool readOnly:3:bool writeOnly:4:bool example:7:any deprecated:8:bool title:9:string
        multipleOf:10:double maximum:11:double exclusiveMaximum:12:bool minimum:13:double
        exclusiveMinimum:14:bool maxLength:15:int64 minLength:16:int64 pattern:17:string maxItems:18:int64
        minItems:19:int64 uniqueItems:20:bool maxProperties:21:int64 minProperties:22:int64 required:23:[string]
        enum:24:[any] type:25:string allOf:26:[SchemaOrReference] oneOf:27:[SchemaOrReference]
        anyOf:28:[SchemaOrReference] not:29:Schema items:30:Items properties:31:Schemas
        additionalProperties:32:AdditionalProperties default:33:Default description:34:string format:35:string
        x-:36:any
    """,
    "Items": lambda _: "1:SchemaOrReference",
    "AdditionalProperties": lambda value: "2:bool" if isinstance(value, bool) else "1:SchemaOrReference",
    "Default": default_value,
}
