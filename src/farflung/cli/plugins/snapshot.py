"""`kubectl kcp crd snapshot`: a CustomResourceDefinition as an APIResourceSchema, without a server."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from farflung.cli.plugins.commands import CommandCall, CommandError, Flag, PluginCommand

if TYPE_CHECKING:
    from collections.abc import Sequence

FORMATS = ("json", "yaml")
NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
NAMES = ("plural", "singular", "shortNames", "kind", "listKind", "categories")
VERSION = ("name", "served", "storage", "deprecated", "deprecationWarning", "schema", "subresources")
COLUMN = ("name", "type", "format", "description", "priority", "jsonPath")
#: field order of Go's JSON
SCHEMA = (
    "id", "$schema", "$ref", "description", "type", "format", "title", "default", "maximum", "exclusiveMaximum",
    "minimum", "exclusiveMinimum", "maxLength", "minLength", "pattern", "maxItems", "minItems", "uniqueItems",
    "multipleOf", "enum", "maxProperties", "minProperties", "required", "items", "allOf", "oneOf", "anyOf", "not",
    "properties", "additionalProperties", "patternProperties", "dependencies", "additionalItems", "definitions",
    "externalDocs", "example", "nullable", "x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource",
    "x-kubernetes-int-or-string", "x-kubernetes-list-map-keys", "x-kubernetes-list-type", "x-kubernetes-map-type",
    "x-kubernetes-validations",
)  # fmt: skip
SCHEMA_MAPS = ("properties", "patternProperties", "definitions")
SCHEMA_LISTS = ("allOf", "oneOf", "anyOf")
SCHEMAS = ("not", "items", "additionalProperties", "additionalItems")


def snapshot(call: CommandCall) -> None:
    form = call.flags.get("output", "yaml")
    complaints = [f"--{flag} is required" for flag in ("filename", "prefix") if not call.flags.get(flag)]
    if form not in FORMATS:
        complaints.append(f'invalid value "{form}" for --output; valid values are json, yaml')
    if complaints:
        raise CommandError(complaints[0] if len(complaints) == 1 else f"[{', '.join(complaints)}]")
    for document in _documents(_text(call.flags["filename"])):
        schema = resource_schema(document, call.flags["prefix"])
        print(_json(schema) if form == "json" else _yaml(schema))
        print("---")


def resource_schema(definition: dict[str, Any], prefix: str) -> dict[str, Any]:
    """The APIResourceSchema of a CustomResourceDefinition."""
    version, kind = definition.get("apiVersion", ""), definition.get("kind", "")
    if (version, kind) != ("apiextensions.k8s.io/v1", "CustomResourceDefinition"):
        raise CommandError(
            f'no kind "{kind}" is registered for version "{version}": only a CustomResourceDefinition of '
            "apiextensions.k8s.io/v1 can be converted"
        )
    try:
        name = f"{prefix}.{definition['metadata']['name']}"
        spec = definition["spec"]
        names = {"singular": spec["names"]["kind"].lower(), "listKind": f"{spec['names']['kind']}List"} | spec["names"]
        content = {
            "group": spec["group"],
            "names": _ordered(names, NAMES),
            "scope": spec["scope"],
            "versions": [_version(each) for each in spec["versions"]],
        }
    except (KeyError, TypeError, AttributeError) as error:
        raise CommandError(f"error converting CRD: a field is missing or not what it should be: {error}") from None
    if not NAME.fullmatch(name) or len(name) > 253:
        raise CommandError(
            f'error converting CRD: metadata.name: Invalid value: "{name}": a lowercase RFC 1123 subdomain must '
            "consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric "
            f"character (e.g. 'example.com', regex used for validation is '{NAME.pattern}')"
        )
    return {
        "kind": "APIResourceSchema",
        "apiVersion": "apis.kcp.io/v1alpha1",
        "metadata": {"name": name, "creationTimestamp": None},
        "spec": content,
    }


def _version(version: dict[str, Any]) -> dict[str, Any]:
    schema = (version.get("schema") or {}).get("openAPIV3Schema") or {}
    content = version | {"schema": _schema(schema), "subresources": version.get("subresources") or {}}
    content = {"served": False, "storage": False} | content
    if not content.get("deprecated"):
        content.pop("deprecated", None)
    ordered = _ordered(content, VERSION)
    if version.get("additionalPrinterColumns"):
        ordered["additionalPrinterColumns"] = [
            _ordered(column, COLUMN) for column in version["additionalPrinterColumns"]
        ]
    return ordered


def _schema(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return schema
    ordered = _ordered(schema, SCHEMA)
    for field in ordered:
        if field in SCHEMA_MAPS:
            ordered[field] = {name: _schema(ordered[field][name]) for name in sorted(ordered[field])}
        elif field in SCHEMA_LISTS:
            ordered[field] = [_schema(each) for each in ordered[field]]
        elif field in SCHEMAS:
            ordered[field] = _schema(ordered[field])
    return ordered


def _ordered(mapping: dict[str, Any], order: Sequence[str]) -> dict[str, Any]:
    return {field: mapping[field] for field in order if field in mapping}


def _text(filename: str) -> str:
    if filename == "-":
        return sys.stdin.read()
    try:
        return Path(filename).read_text(encoding="utf-8")
    except OSError as error:
        reason = (error.strerror or "").lower()
        raise CommandError(f"error opening {filename}: open {filename}: {reason}") from None


def _documents(text: str) -> Iterator[dict[str, Any]]:
    import yaml

    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class StrictLoader(base):  # type: ignore[misc]
        """Refuses duplicate fields: two documents without a separator would be merged."""

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            mapping: dict[Any, Any] = super().construct_mapping(node, deep)
            if len(mapping) < len(node.value):
                raise CommandError("error converting CRD: a field is there twice; documents are separated by ---")
            return mapping

    try:
        for document in yaml.load_all(text, StrictLoader):
            if document is None:
                continue
            if not isinstance(document, dict):
                raise CommandError("error converting CRD: a document is no object")
            yield document
    except yaml.YAMLError as error:
        raise CommandError(f"error converting YAML to JSON: {' '.join(str(error).split())}") from None


def _json(value: Any) -> str:
    """With Go's HTML escapes."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text + "\n"


def _yaml(value: Any) -> str:
    import yaml

    from farflung.cli.plugins.yaml_text import is_ambiguous

    base: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)

    class Dumper(base):  # type: ignore[misc]
        """Quotes like Go's library."""

        def ignore_aliases(self, data: Any) -> bool:
            return True

    def represent(dumper: Any, text: str) -> Any:
        style = "|" if "\n" in text else '"' if not text or is_ambiguous(text) else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    Dumper.add_representer(str, represent)
    text: str = yaml.dump(value, Dumper=Dumper, width=80, allow_unicode=True, default_flow_style=False)
    return text


CRD = PluginCommand(
    "crd",
    "CRD related operations",
    commands=(
        PluginCommand(
            "snapshot -f FILE --prefix PREFIX",
            "Snapshot a CRD and convert it to an APIResourceSchema",
            snapshot,
            example="""
\t# Convert a CRD in a yaml file to an APIResourceSchema. For a CRD named widgets.example.io, and a prefix value of
\t# 'today', the new APIResourceSchema's name will be today.widgets.example.io.
\tkubectl kcp crd snapshot -f crd.yaml --prefix 2022-05-07 > api-resource-schema.yaml

\t# Convert a CRD from STDIN
\tkubectl get crd foo -o yaml | kubectl kcp crd snapshot -f - --prefix today > output.yaml
""",
            flags=(
                Flag(
                    "filename",
                    "Path to a file containing the CRD to convert to an APIResourceSchema, or - for stdin",
                    short="f",
                ),
                Flag("output", "Output format. Valid values are 'json' and 'yaml' (default \"yaml\")", short="o"),
                Flag("prefix", "Prefix to use for the APIResourceSchema's name, before <resource>.<group>"),
            ),
        ),
    ),
)
