#!/usr/bin/env python3
"""Read how Kubernetes' Go types go over the wire out of programs that were linked with them.

    tools/extract_wire.py kubectl [anthoscli ...] > src/farflung/apis/wire.json

The schemas we serve (OpenAPI) leave out what Go's encoders go by: whether a field is a pointer, whether an empty
value is left out, which number a field has in protobuf, which structs are nested there though JSON shows their fields
inline.  A Go program carries all of it: reflection data of every struct (names, tags, types), and a gzipped
FileDescriptorProto per package.  This reads both from static ELF programs; where two programs know a type, the first
named wins, so name the newest first.  kubectl has everything but CustomResourceDefinitions; for those take any program
with k8s.io/apiextensions-apiserver in it.

Output: JSON, a line per type, sorted; `apis/wire.py` says what a line means.  `LATER` holds what newer releases have.
"""

from __future__ import annotations

import json
import re
import struct
import sys
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

SERVED = re.compile(
    r"io\.k8s\.(api\.(core|apps|batch|autoscaling|networking|policy|rbac|authentication|authorization|certificates"
    r"|coordination|events|discovery|storage|scheduling|admissionregistration|node|flowcontrol)\.v\d+\."
    r"|apiextensions-apiserver\.pkg\.apis\.apiextensions\.v1\."
    r"|apimachinery\.pkg\.apis\.meta\.v1\.)"
)
#: types with encoders of their own, which reflection says nothing about
OPAQUE = re.compile(r".*\.(Time|MicroTime|Duration|FieldsV1|JSON|JSONSchemaPropsOr\w+)")

_CORE, _STORAGE = "io.k8s.api.core.v1", "io.k8s.api.storage.v1"
_META = "io.k8s.apimachinery.pkg.apis.meta.v1"
_EXTENSIONS = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1"
Line = list[str | int]

#: what Kubernetes 1.34 has and kubectl 1.33, or apiextensions 0.24, had not: type → new or changed lines
LATER: dict[str, list[Line]] = {
    f"{_CORE}.Container": [["restartPolicyRules", 25, "[]ContainerRestartRule", "o"]],
    f"{_CORE}.ContainerExtendedResourceRequest": [
        ["containerName", 1, "string", ""],
        ["resourceName", 2, "string", ""],
        ["requestName", 3, "string", ""],
    ],
    f"{_CORE}.ContainerRestartRule": [
        ["action", 1, "string", "o"],
        ["exitCodes", 2, "*ContainerRestartRuleOnExitCodes", "o"],
    ],
    f"{_CORE}.ContainerRestartRuleOnExitCodes": [["operator", 1, "string", "o"], ["values", 2, "[]int32", "o"]],
    f"{_CORE}.EnvVarSource": [["fileKeyRef", 5, "*FileKeySelector", "o"]],
    f"{_CORE}.EphemeralContainerCommon": [["restartPolicyRules", 25, "[]ContainerRestartRule", "o"]],
    f"{_CORE}.FileKeySelector": [
        ["volumeName", 1, "string", ""],
        ["path", 2, "string", ""],
        ["key", 3, "string", ""],
        ["optional", 4, "*bool", "o"],
    ],
    f"{_CORE}.PodCertificateProjection": [
        ["signerName", 1, "string", "o"],
        ["keyType", 2, "string", "o"],
        ["maxExpirationSeconds", 3, "*int32", "o"],
        ["credentialBundlePath", 4, "string", "o"],
        ["keyPath", 5, "string", "o"],
        ["certificateChainPath", 6, "string", "o"],
    ],
    f"{_CORE}.PodExtendedResourceClaimStatus": [
        ["requestMappings", 1, "[]ContainerExtendedResourceRequest", ""],
        ["resourceClaimName", 2, "string", ""],
    ],
    f"{_CORE}.PodSpec": [["hostnameOverride", 41, "*string", "o"]],
    f"{_CORE}.PodStatus": [["extendedResourceClaimStatus", 18, "*PodExtendedResourceClaimStatus", "o"]],
    f"{_CORE}.VolumeProjection": [["podCertificate", 6, "*PodCertificateProjection", "o"]],
    f"{_STORAGE}.VolumeAttributesClass": [
        ["TypeMeta", 0, f"{_META}.TypeMeta", "i"],
        ["metadata", 1, f"{_META}.ObjectMeta", "o"],
        ["driverName", 2, "string", ""],
        ["parameters", 3, "{}string", "o"],
    ],
    f"{_STORAGE}.VolumeAttributesClassList": [
        ["TypeMeta", 0, f"{_META}.TypeMeta", "i"],
        ["metadata", 1, f"{_META}.ListMeta", "o"],
        ["items", 2, "[]VolumeAttributesClass", ""],
    ],
    f"{_META}.ObjectMeta": [["creationTimestamp", 8, "Time", "oz"]],
    f"{_EXTENSIONS}.CustomResourceDefinitionVersion": [["selectableFields", 9, "[]SelectableField", "o"]],
    f"{_EXTENSIONS}.SelectableField": [["jsonPath", 1, "string", ""]],
    f"{_EXTENSIONS}.ValidationRule": [
        ["messageExpression", 3, "string", "o"],
        ["reason", 4, "*string", "o"],
        ["fieldPath", 5, "string", "o"],
        ["optionalOldSelf", 6, "*bool", "o"],
    ],
}


# --- Go's reflection data -------------------------------------------------------------------------

BOOL, INT32, INT64, UINT32, UINT64, FLOAT64 = 1, 5, 6, 10, 11, 14
MAP, POINTER, SLICE, STRING, STRUCT = 21, 22, 23, 24, 25
SCALARS = {
    BOOL: "bool",
    INT32: "int32",
    INT64: "int64",
    UINT32: "uint32",
    UINT64: "uint64",
    FLOAT64: "double",
    STRING: "string",
}
UINT8 = 8
NAMED, UNCOMMON, EXTRA_STAR = 4, 1, 2
TYPE_SIZE = 48  # of abi.Type, which every kind's record begins with


@dataclass
class GoField:
    name: str
    tag: str
    type: GoType
    embedded: bool


@dataclass
class GoType:
    """A type as reflection knows it.  `target` is what a pointer, slice or map leads to."""

    kind: int
    name: str = ""  #: of a named type: its package in our notation, a dot, its own name
    target: GoType | None = None
    fields: list[GoField] = field(default_factory=list)


class Section(NamedTuple):
    address: int
    offset: int
    size: int


class Program:
    """A static ELF64 program made by Go's linker (at least 1.18)."""

    def __init__(self, path: Path) -> None:
        self.data = path.read_bytes()
        if self.data[:5] != b"\x7fELF\x02":
            raise SystemExit(f"{path} is not a 64-bit ELF program")
        self.sections = dict(self._sections())
        for name in (".rodata", ".typelink"):
            if name not in self.sections:
                raise SystemExit(f"{path} has no section {name}: it was not made by Go")
        self.base = self.sections[".rodata"].address
        self.types: dict[int, GoType] = {}

    def _sections(self) -> Iterator[tuple[str, Section]]:
        (table,) = struct.unpack_from("<Q", self.data, 40)
        size, count, names = struct.unpack_from("<HHH", self.data, 58)
        headers = [struct.unpack_from("<IIQQQQ", self.data, table + size * index) for index in range(count)]
        strings = headers[names][4]
        for name, _, _, address, offset, length in headers:
            start = strings + name
            yield self.data[start : self.data.index(b"\0", start)].decode(), Section(address, offset, length)

    def structs(self) -> dict[str, GoType]:
        """Every named struct or slice that can be reached from the program's list of types."""
        links = self.sections[".typelink"]
        for (offset,) in struct.iter_unpack("<i", self.data[links.offset : links.offset + links.size]):
            self._type(self.base + offset)
        return {type_.name: type_ for type_ in self.types.values() if type_.name and type_.kind in (STRUCT, SLICE)}

    def _offset(self, address: int) -> int:
        for start, offset, size in self.sections.values():
            if start <= address < start + size:
                return offset + address - start
        raise ValueError(f"no section has the address {address:#x}")

    def _words(self, address: int, count: int) -> tuple[int, ...]:
        return struct.unpack_from(f"<{count}Q", self.data, self._offset(address))

    def _name(self, address: int) -> tuple[str, str, bool]:
        """A name record: the name, its tag, and whether it is an embedded field's."""
        at = self._offset(address)
        flags = self.data[at]
        name, at = self._text(at + 1)
        tag = self._text(at)[0] if flags & 2 else ""
        return name, tag, bool(flags & 8)

    def _text(self, at: int) -> tuple[str, int]:
        length, at = varint(self.data, at)
        return self.data[at : at + length].decode(), at + length

    def _type(self, address: int) -> GoType:
        """The type at an address; recursive types are why it is known before it is filled."""
        if address in self.types:
            return self.types[address]
        at = self._offset(address)
        kind, flags = self.data[at + 23] & 31, self.data[at + 20]
        type_ = self.types[address] = GoType(kind)
        record = address + TYPE_SIZE
        extra = {STRUCT: 32, MAP: 40, SLICE: 8, POINTER: 8}.get(kind, 0)
        if flags & NAMED and flags & UNCOMMON and kind in (STRUCT, SLICE):
            (package,) = struct.unpack_from("<i", self.data, self._offset(record + extra))
            (text,) = struct.unpack_from("<i", self.data, at + 40)
            name = self._name(self.base + text)[0].removeprefix("*" if flags & EXTRA_STAR else "")
            type_.name = f"{definition_package(self._name(self.base + package)[0])}.{name.rpartition('.')[2]}"
        if kind in (POINTER, SLICE):
            type_.target = self._type(self._words(record, 1)[0])
        elif kind == MAP:
            type_.target = self._type(self._words(record, 2)[1])
        elif kind == STRUCT:
            _, fields, count, _ = self._words(record, 4)
            for index in range(count):
                name_at, type_at, _ = self._words(fields + 24 * index, 3)
                name, tag, embedded = self._name(name_at)
                type_.fields.append(GoField(name, tag, self._type(type_at), embedded))
        return type_


def definition_package(path: str) -> str:
    """`k8s.io/api/core/v1` → `io.k8s.api.core.v1`."""
    host, *rest = path.split("/")
    return ".".join([*reversed(host.split(".")), *rest])


# --- protobuf descriptors -------------------------------------------------------------------------

PROTO = {
    1: "double",
    3: "int64",
    4: "uint64",
    5: "int32",
    8: "bool",
    9: "string",
    11: "message",
    12: "bytes",
    13: "uint32",
}
Descriptor = dict[int, str]  #: a message's fields: number → type


def descriptors(data: bytes) -> dict[str, Descriptor]:
    """Every message of every FileDescriptorProto in a program, by our name for it."""
    messages: dict[str, Descriptor] = {}
    for match in re.finditer(rb"\x1f\x8b\x08", data):
        try:
            content = zlib.decompressobj(31).decompress(data[match.start() : match.start() + 500_000])
        except zlib.error:
            continue
        if content[:1] == b"\n" and b"generated.proto" in content[:130]:
            messages.update(file_messages(content))
    return messages


def file_messages(content: bytes) -> Iterator[tuple[str, Descriptor]]:
    file = parsed(content)
    package = proto_package(file[2][0].decode())
    for body in file.get(4, ()):
        message = parsed(body)
        described = (parsed(one) for one in message.get(2, ()))
        fields = {one[3][0]: PROTO[one[5][0]] for one in described}
        yield f"{package}.{message[1][0].decode()}", fields


def proto_package(package: str) -> str:
    """`k8s.io.api.core.v1` → `io.k8s.api.core.v1`; in protobuf a dash is an underscore."""
    return "io.k8s" + package.removeprefix("k8s.io").replace("_", "-")


def parsed(message: bytes) -> dict[int, list[Any]]:
    """The fields of a protobuf message, by number, each as often as it occurs."""
    fields: dict[int, list[Any]] = {}
    at = 0
    while at < len(message):
        key, at = varint(message, at)
        value, at = varint(message, at)
        if key & 7 == 2:
            start, at = at, at + value
        fields.setdefault(key >> 3, []).append(message[start:at] if key & 7 == 2 else value)
    return fields


def varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7


# --- the table ------------------------------------------------------------------------------------


class Table:
    """Lines for the types of one program."""

    def __init__(self, program: Program) -> None:
        self.structs = program.structs()
        self.messages = descriptors(program.data)

    def lines(self) -> dict[str, list[Line] | str]:
        found: dict[str, list[Line] | str] = {}
        for name, type_ in self.structs.items():
            if not SERVED.match(name) or OPAQUE.fullmatch(name):
                continue
            if type_.kind == STRUCT:
                found[name] = [line for member in type_.fields if (line := self.line(name, member))]
            elif name in self.messages:
                found[name] = "[]" + self.shown(type_.target, name)
        return found

    def line(self, owner: str, member: GoField) -> Line | None:
        json_tag = tag_value(member.tag, "json").split(",")
        _, number, *_ = *tag_value(member.tag, "protobuf").split(","), "0"
        if json_tag[0] == "-" or not member.tag:
            return None
        inline = member.embedded and not json_tag[0]
        flags = "i" if inline else ""
        flags += "o" if "omitempty" in json_tag else ""
        flags += "z" if "omitzero" in json_tag else ""
        if number != "0" and int(number) not in self.messages.get(owner, {}):
            raise SystemExit(f"{owner}.{member.name}: its tag says number {number}, its descriptor has none")
        return [json_tag[0] or member.name, int(number), self.shown(member.type, owner), flags]

    def shown(self, type_: GoType | None, owner: str) -> str:
        """A type as the table writes it; one of the owner's package without the package."""
        assert type_ is not None
        if type_.kind in SCALARS:
            return SCALARS[type_.kind]
        if type_.kind == STRUCT or (type_.kind == SLICE and type_.name in self.messages):
            package, _, name = type_.name.rpartition(".")
            return name if package == owner.rpartition(".")[0] else type_.name
        if type_.kind == POINTER:
            return "*" + self.shown(type_.target, owner)
        if type_.kind == MAP:
            return "{}" + self.shown(type_.target, owner)
        if type_.kind == SLICE and type_.target and type_.target.kind == UINT8:
            return "bytes"
        if type_.kind == SLICE:
            return "[]" + self.shown(type_.target, owner)
        return "any"


def tag_value(tag: str, key: str) -> str:
    match = re.search(rf'\b{key}:"([^"]*)"', tag)
    return match[1] if match else ""


def amended(found: dict[str, list[Line] | str]) -> dict[str, list[Line] | str]:
    """The table with what newer releases changed."""
    for name, lines in LATER.items():
        known = {line[0]: line for line in found.get(name, []) if isinstance(line, list)}
        found[name] = list((known | {line[0]: line for line in lines}).values())
    return found


def main() -> None:
    found: dict[str, list[Line] | str] = {}
    for path in sys.argv[1:] or sys.exit(__doc__):
        found = Table(Program(Path(path))).lines() | found
    rows = (
        f"{json.dumps(name)}:{json.dumps(lines, separators=(',', ':'))}"
        for name, lines in sorted(amended(found).items())
    )
    sys.stdout.write("{\n" + ",\n".join(rows) + "\n}\n")


if __name__ == "__main__":
    main()
