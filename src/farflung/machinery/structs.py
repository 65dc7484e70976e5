"""Fields of the Go structs behind the kinds: facts that OpenAPI leaves out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

ONE: Final = ""
LIST: Final = "list"
MAP: Final = "map"

#: types that are not messages → the JSON of an unset value
SCALARS: Final[Mapping[str, Any]] = {
    "string": "",
    "bool": False,
    "int32": 0,
    "int64": 0,
    "double": 0,
    "bytes": None,
    "any": None,
}

META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1."
EXTENSIONS: Final = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1."

#: messages whose JSON is no object of their fields → the JSON of an unset one
SPECIAL: Final[Mapping[str, Any]] = {
    f"{META}Time": None,
    f"{META}MicroTime": None,
    f"{META}FieldsV1": None,
    "io.k8s.apimachinery.pkg.runtime.RawExtension": None,
    "io.k8s.apimachinery.pkg.api.resource.Quantity": "0",
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": 0,
    f"{EXTENSIONS}JSON": None,
    f"{EXTENSIONS}JSONSchemaPropsOrArray": None,
    f"{EXTENSIONS}JSONSchemaPropsOrBool": False,
    f"{EXTENSIONS}JSONSchemaPropsOrStringArray": None,
}


class GoField(msgspec.Struct, frozen=True):
    """One field of a Go struct, from its tags and its type."""

    name: str  #: in JSON; of an inlined struct its Go name
    number: int  #: in protobuf; 0: not in protobuf
    type: str  #: of the value, or of the values of a list or map: one of SCALARS, or the name of a definition
    shape: str = ONE  #: ONE, LIST or MAP
    pointer: bool = False
    omitempty: bool = False
    omitzero: bool = False
    inline: bool = False  #: JSON shows this struct's fields among those of the struct it is in
    wrapped: bool = False  #: the only field of a message that JSON shows as a bare list
