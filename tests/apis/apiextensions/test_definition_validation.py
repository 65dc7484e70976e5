"""What is refused in a CustomResourceDefinition, in Kubernetes' words and order."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from farflung.apis.apiextensions.kinds import RESOURCES
from farflung.apis.apiextensions.validation import GROUP, KIND, RULES
from farflung.apis.metadata import validate_metadata
from farflung.hub.catalog.kinds import shape_of
from farflung.machinery.errors import Obj

RULES_OF_DEFINITIONS = RULES[GROUP, KIND]
CONFORMER = shape_of(RESOURCES[0]).conformer
NO_LABEL = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    "'[a-z]([-a-z0-9]*[a-z0-9])?')"
)
NAMES = {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"}
PLAIN = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"a": {"type": "string"}}}}}
ROOT = "spec.validation.openAPIV3Schema"
AT_A = f"{ROOT}.properties[spec].properties[a]"


def version(name: str = "v1", *, schema: Any = PLAIN, **members: Any) -> Obj:
    return {"name": name, "served": True, "storage": name == "v1", "schema": {"openAPIV3Schema": schema}, **members}


def definition(*versions: Obj, name: str = "things.example.com", **members: Any) -> Obj:
    spec = {"group": "example.com", "scope": "Namespaced", "names": NAMES, "versions": list(versions) or [version()]}
    return prepared({"metadata": {"name": name}, "spec": {**spec, **members}})


def prepared(sent: Obj) -> Obj:
    obj = CONFORMER.conform(copy.deepcopy({"apiVersion": "apiextensions.k8s.io/v1", "kind": KIND, **sent})).obj
    RULES_OF_DEFINITIONS.default(obj)
    RULES_OF_DEFINITIONS.prepare_create(obj)
    return obj


def refused(obj: Obj) -> list[str]:
    errors = validate_metadata(obj, RULES_OF_DEFINITIONS, namespaced=False)
    errors += RULES_OF_DEFINITIONS.validate(obj) + RULES_OF_DEFINITIONS.validate_create(obj)
    return [str(error) for error in errors]


def with_a(**schema: Any) -> list[str]:
    """What is refused in the schema of `.spec.a`."""
    return with_root({"type": "object", "properties": {"spec": {"type": "object", "properties": {"a": schema}}}})


def with_root(schema: Obj, **members: Any) -> list[str]:
    return refused(definition(version(schema=schema, **members)))


# --- names, versions, groups ------------------------------------------------------------------------


def test_a_good_definition_is_not_refused() -> None:
    assert refused(definition()) == []


def test_a_definition_of_nothing_lacks_everything() -> None:
    assert refused(prepared({"metadata": {"name": "things.example.com"}})) == [
        'metadata.name: Invalid value: "things.example.com": must be spec.names.plural+"."+spec.group',
        "spec.group: Required value",
        "spec.scope: Required value",
        "spec.versions: Invalid value: null: must have exactly one version marked as storage version",
        "spec.names.plural: Required value",
        "spec.names.singular: Required value",
        "spec.names.kind: Required value",
        "spec.names.listKind: Required value",
        "status.storedVersions: Invalid value: null: must have at least one stored version",
    ]


def test_a_definition_is_called_by_plural_and_group() -> None:
    assert refused(definition(name="wrong.name")) == [
        'metadata.name: Invalid value: "wrong.name": must be spec.names.plural+"."+spec.group'
    ]


@pytest.mark.parametrize(
    ("group", "wrong"),
    [
        ("nodots", "should be a domain with at least one dot"),
        ("Up.per", "a lowercase RFC 1123 subdomain must consist of"),
    ],
)
def test_a_group_is_a_domain(group: str, wrong: str) -> None:
    (error,) = refused(definition(name=f"things.{group}".lower(), group=group))[-1:]
    assert error.startswith(f'spec.group: Invalid value: "{group}": {wrong}')


def test_a_scope_is_one_of_two() -> None:
    assert refused(definition(scope="Foo")) == [
        'spec.scope: Unsupported value: "Foo": supported values: "Cluster", "Namespaced"'
    ]


def shown(name: str, storage: bool) -> str:
    return (
        f'{{"Name":"{name}","Served":true,"Storage":{str(storage).lower()},"Deprecated":false,'
        '"DeprecationWarning":null,"Schema":null,"Subresources":null,"AdditionalPrinterColumns":null,'
        '"SelectableFields":null}'
    )


def test_one_version_is_stored() -> None:
    once = "must have exactly one version marked as storage version"
    assert refused(definition(version(storage=False))) == [
        f"spec.versions: Invalid value: [{shown('v1', False)}]: {once}",
        "status.storedVersions: Invalid value: null: must have at least one stored version",
    ]
    assert refused(definition(version(), version("v2", storage=True))) == [
        f"spec.versions: Invalid value: [{shown('v1', True)},{shown('v2', True)}]: {once}",
        'status.storedVersions: Invalid value: ["v1"]: must have the storage version v2',
    ]


def test_versions_have_different_names() -> None:
    assert refused(definition(version(), version(storage=False))) == [
        f"spec.versions: Invalid value: [{shown('v1', True)},{shown('v1', False)}]: must contain unique version names"
    ]


def test_the_first_bad_version_name_is_told_twice() -> None:
    assert refused(definition(version("V_1", storage=True))) == [
        f'spec.versions[0].name: Invalid value: "V_1": {NO_LABEL}',
        f'spec.version: Invalid value: "V_1": {NO_LABEL}',
    ]


def test_names_are_labels() -> None:
    names = {"plural": "things", "kind": "Thing", "shortNames": ["T H"], "categories": ["A_"]}
    assert refused(definition(names=names)) == [
        f'spec.names.shortNames[0]: Invalid value: "T H": {NO_LABEL}',
        f'spec.names.categories[0]: Invalid value: "A_": {NO_LABEL}',
    ]
    mixed = "may have mixed case, but should otherwise match: "
    assert refused(definition(names={**NAMES, "kind": "Thing_", "listKind": "Thing_"})) == [
        f'spec.names.kind: Invalid value: "Thing_": {mixed}{NO_LABEL}',
        f'spec.names.listKind: Invalid value: "Thing_": {mixed}{NO_LABEL}',
        'spec.names.listKind: Invalid value: "Thing_": kind and listKind may not be the same',
    ]


def test_a_version_has_a_schema() -> None:
    bare = {"name": "v1", "served": True, "storage": True}
    assert refused(definition(bare)) == ["spec.versions[0].schema.openAPIV3Schema: Required value"]
    other = version("v2", schema={"type": "string"})
    assert refused(definition(bare, other)) == [
        "spec.versions[0].schema.openAPIV3Schema: Required value",
        'spec.versions[1].schema.openAPIV3Schema.type: Invalid value: "string": must be object at the root',
    ]


def test_the_groups_of_kubernetes_need_an_approval() -> None:
    annotation = "metadata.annotations[api-approved.kubernetes.io]"
    must = 'protected groups must have approval annotation "api-approved.kubernetes.io"'
    see = "see https://github.com/kubernetes/enhancements/pull/1111"
    sent = {"group": "x.k8s.io", "scope": "Cluster", "names": NAMES, "versions": [version()]}

    def approved(text: str | None) -> list[str]:
        annotations = {} if text is None else {"annotations": {"api-approved.kubernetes.io": text}}
        return refused(prepared({"metadata": {"name": "things.x.k8s.io", **annotations}, "spec": sent}))

    assert approved(None) == [f"{annotation}: Required value: {must}, {see}"]
    assert approved("because") == [
        f'{annotation}: Invalid value: "because": {must} with either a URL or a reason starting with "unapproved", '
        f"{see}"
    ]
    assert approved("https://example.com/pull/1") == []
    assert approved("unapproved, experimental") == []


@pytest.mark.parametrize(
    ("members", "wrong"),
    [
        ({"deprecationWarning": "x"}, '"x": can only be set for deprecated versions'),
        ({"deprecated": True, "deprecationWarning": ""}, '"": must not be an empty string'),
        (
            {"deprecated": True, "deprecationWarning": "é\x07"},
            '"é\\a": must only contain printable UTF-8 characters; non-printable character found at index 2',
        ),
        (
            {"deprecated": True, "deprecationWarning": "x" * 257},
            f'"{"x" * 257}": must be <= 256 characters long',
        ),
    ],
)
def test_a_warning_of_deprecation_is_short_and_printable(members: Obj, wrong: str) -> None:
    assert refused(definition(version(**members))) == [f"spec.versions[0].deprecationWarning: Invalid value: {wrong}"]


# --- structural schemas -----------------------------------------------------------------------------

NAMED = {"type": "object", "properties": {"k": {"type": "string"}}}
KEYED = {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]}

REFUSED_AT_A: list[tuple[Obj, list[str]]] = [
    ({"description": "x"}, [".type: Required value: must not be empty for specified object fields"]),
    (
        {"type": "foo"},
        [
            '.type: Unsupported value: "foo": supported values: "array", "boolean", "integer", "number", "object", '
            '"string"'
        ],
    ),
    (
        {"type": "null"},
        [
            '.type: Unsupported value: "null": supported values: "array", "boolean", "integer", "number", "object", '
            '"string"',
            ".type: Forbidden: type cannot be set to null, use nullable as an alternative",
        ],
    ),
    ({"type": "array"}, [".items: Required value: must be specified"]),
    (
        {"type": "array", "items": {}},
        [".items.type: Required value: must not be empty for specified array items"],
    ),
    (
        {"type": "array", "items": [{"type": "string"}]},
        [".items: Forbidden: items must be a schema object and not an array"],
    ),
    (
        {**NAMED, "additionalProperties": {"type": "string"}},
        [".additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive"],
    ),
    ({"type": "object", "additionalProperties": False}, []),
    ({**NAMED, "additionalProperties": True}, []),
    (
        {"type": "array", "uniqueItems": True, "items": {"type": "string"}},
        [
            ".uniqueItems: Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
        ],
    ),
    ({"$ref": "#/x"}, [".$ref: Forbidden: $ref is not supported"]),
    ({"type": "string", "id": "x"}, [".id: Forbidden: id is not supported"]),
    (
        {"type": "object", "patternProperties": {"a": {}}, "definitions": {"b": {}}, "dependencies": {"c": ["d"]}},
        [
            ".patternProperties: Forbidden: patternProperties is not supported",
            ".definitions: Forbidden: definitions is not supported",
            ".dependencies: Forbidden: dependencies is not supported",
        ],
    ),
    (
        {"type": "string", "pattern": "("},
        [
            '.pattern: Invalid value: "(": must be a valid regular expression, but isn\'t: error parsing regexp: '
            "missing closing ): `(`"
        ],
    ),
    (
        {"type": "string", "pattern": "a**"},
        [
            '.pattern: Invalid value: "a**": must be a valid regular expression, but isn\'t: error parsing regexp: '
            "invalid nested repetition operator: `**`"
        ],
    ),
    (
        {"type": "object", "x-kubernetes-preserve-unknown-fields": False},
        [".x-kubernetes-preserve-unknown-fields: Invalid value: false: must be true or undefined"],
    ),
    ({"type": "string", "x-kubernetes-int-or-string": True}, []),
    ({"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]}, []),
    (
        {
            "x-kubernetes-int-or-string": True,
            "allOf": [{"anyOf": [{"type": "integer"}, {"type": "string"}]}, {"minLength": 1}],
        },
        [],
    ),
    (
        {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "string"}, {"type": "integer"}]},
        [
            ".anyOf[0].type: Forbidden: must be empty to be structural",
            ".anyOf[1].type: Forbidden: must be empty to be structural",
        ],
    ),
    (
        {"x-kubernetes-int-or-string": True, "x-kubernetes-preserve-unknown-fields": True},
        [
            ".x-kubernetes-preserve-unknown-fields: Invalid value: true: must be false if x-kubernetes-int-or-string "
            "is true"
        ],
    ),
    (
        {"type": "string", "x-kubernetes-embedded-resource": True},
        [
            ".properties: Required value: must not be empty if x-kubernetes-embedded-resource is true without "
            "x-kubernetes-preserve-unknown-fields",
            '.type: Invalid value: "string": must be object if x-kubernetes-embedded-resource is true',
        ],
    ),
    (
        {
            "type": "object",
            "x-kubernetes-embedded-resource": True,
            "x-kubernetes-preserve-unknown-fields": True,
            "properties": {"kind": {"type": "integer"}, "metadata": {"type": "string"}},
        },
        [
            '.properties[kind].type: Invalid value: "integer": must be string',
            '.properties[metadata].type: Invalid value: "string": must be object',
        ],
    ),
    ({"type": "string", "anyOf": [{"type": "string"}]}, [".anyOf[0].type: Forbidden: must be empty to be structural"]),
    (
        {"type": "string", "oneOf": [{"title": "t", "nullable": True}], "allOf": [{"description": "d"}]},
        [
            ".allOf[0].description: Forbidden: must be empty to be structural",
            ".oneOf[0].nullable: Forbidden: must be false to be structural",
            ".oneOf[0].title: Forbidden: must be empty to be structural",
        ],
    ),
    ({"type": "string", "not": {"default": "x"}}, [".not.default: Forbidden: must be undefined to be structural"]),
    (
        {"type": "object", "not": {"properties": {"metadata": {}}}, "properties": {"metadata": {"type": "object"}}},
        [".not.properties[metadata]: Forbidden: must not be specified in a nested context"],
    ),
    ({"type": "object", "anyOf": [{"properties": {"z": {"minLength": 1}}}]}, []),
]


@pytest.mark.parametrize(("schema", "wrong"), REFUSED_AT_A)
def test_schemas_are_structural(schema: Obj, wrong: list[str]) -> None:
    assert with_a(**schema) == [f"{AT_A}{text}" for text in wrong]


@pytest.mark.parametrize(
    ("schema", "wrong"),
    [
        (
            KEYED | {"x-kubernetes-list-map-keys": [], "items": NAMED},
            [".x-kubernetes-list-map-keys: Required value: must not be empty if x-kubernetes-list-type is map"],
        ),
        (
            KEYED | {"x-kubernetes-list-map-keys": ["z"], "items": NAMED},
            ['.x-kubernetes-list-map-keys: Invalid value: ["z"]: entries must all be names of item properties'],
        ),
        (
            KEYED | {"items": NAMED},
            [
                ".items.properties[k].default: Required value: this property is in x-kubernetes-list-map-keys, so it "
                "must have a default or be a required property"
            ],
        ),
        (KEYED | {"items": {**NAMED, "required": ["k"]}}, []),
        (
            KEYED | {"items": {"type": "object", "properties": {"k": {"type": "string", "default": "x"}}}},
            [],
        ),
        (
            KEYED | {"items": {"type": "string"}},
            ['.items.type: Invalid value: "string": must be object if parent array\'s x-kubernetes-list-type is map'],
        ),
        (
            KEYED
            | {
                "x-kubernetes-list-map-keys": ["k", "k"],
                "items": {
                    "type": "object",
                    "required": ["k"],
                    "nullable": True,
                    "properties": {"k": {"type": "object"}},
                },
            },
            [
                '.items.properties[k].type: Invalid value: "object": must be a scalar type if parent array\'s '
                "x-kubernetes-list-type is map",
                '.items.properties[k].type: Invalid value: "object": must be a scalar type if parent array\'s '
                "x-kubernetes-list-type is map",
                '.x-kubernetes-list-map-keys: Invalid value: ["k","k"]: must not contain duplicate entries',
                ".items.nullable: Forbidden: cannot be nullable when x-kubernetes-list-type is map",
            ],
        ),
        (
            {"type": "array", "items": NAMED, "x-kubernetes-list-type": "set"},
            [
                ".items.x-kubernetes-map-type: Invalid value: null: must be atomic as item of a list with "
                "x-kubernetes-list-type=set"
            ],
        ),
        (
            {"type": "array", "items": {**NAMED, "x-kubernetes-map-type": "atomic"}, "x-kubernetes-list-type": "set"},
            [],
        ),
        (
            {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "foo"},
            ['.x-kubernetes-list-type: Unsupported value: "foo": supported values: "atomic", "set", "map"'],
        ),
        (
            {"type": "string", "x-kubernetes-list-type": "set"},
            ['.type: Invalid value: "string": must be array if x-kubernetes-list-type is specified'],
        ),
        (
            {"type": "array", "items": NAMED, "x-kubernetes-list-map-keys": ["k"]},
            [".x-kubernetes-list-type: Required value: must be map if x-kubernetes-list-map-keys is non-empty"],
        ),
        (
            {"type": "object", "x-kubernetes-map-type": "foo"},
            ['.x-kubernetes-map-type: Unsupported value: "foo": supported values: "atomic", "granular"'],
        ),
        (
            {"type": "string", "x-kubernetes-map-type": "atomic"},
            ['.type: Invalid value: "string": must be object if x-kubernetes-map-type is specified'],
        ),
    ],
)
def test_lists_and_maps_have_a_type_that_fits_them(schema: Obj, wrong: list[str]) -> None:
    assert sorted(with_a(**schema)) == sorted(f"{AT_A}{text}" for text in wrong)


@pytest.mark.parametrize(
    ("schema", "wrong"),
    [
        ({"type": "string"}, ['.type: Invalid value: "string": must be object at the root']),
        ({"properties": {"spec": {"type": "string"}}}, [".type: Required value: must not be empty at the root"]),
        ({"type": "object", "nullable": True}, [".nullable: Forbidden: nullable cannot be true at the root"]),
        (
            {"type": "object", "additionalProperties": {"type": "string"}},
            [".additionalProperties: Forbidden: must not be used at the root"],
        ),
        (
            {"type": "object", "properties": {"metadata": {"type": "object", "properties": {"labels": NAMED}}}},
            [
                ".properties[metadata]: Forbidden: must not specify anything other than name and generateName, but "
                "metadata is implicitly specified"
            ],
        ),
        (
            {
                "type": "object",
                "properties": {"metadata": {"type": "object", "properties": {"name": {"pattern": "^a"}}}},
            },
            [
                ".properties[metadata].properties[name].type: Required value: must not be empty for specified object "
                "fields"
            ],
        ),
        (
            {
                "type": "object",
                "anyOf": [{"properties": {"z": {"items": {"minLength": 1}}}}],
                "properties": {"y": NAMED},
            },
            [f".properties[z]: Required value: because it is defined in {ROOT}.anyOf[0].properties[z]"],
        ),
        (
            {"type": "object", "not": {"properties": {"y": {"items": {}}}}, "properties": {"y": NAMED}},
            [f".properties[y].items: Required value: because it is defined in {ROOT}.not.properties[y].items"],
        ),
        ({"type": "object", "$schema": "x"}, [": Invalid value: \"\": OpenAPIV3Schema 'schema' is not supported"]),
        (
            {"type": "object", "properties": {"kind": {"type": "string", "default": "Thing"}}},
            [".properties[kind].default: Forbidden: must not be set in top-level kind"],
        ),
    ],
)
def test_the_root_is_an_object_like_all_others(schema: Obj, wrong: list[str]) -> None:
    assert with_root(schema) == [f"{ROOT}{text}" for text in wrong]


def test_a_status_that_is_apart_leaves_nothing_but_properties_at_the_root() -> None:
    assert with_root({**PLAIN, "required": ["spec"], "description": "d"}, subresources={"status": {}}) == []
    (error,) = with_root({**PLAIN, "anyOf": [{"required": ["spec"]}]}, subresources={"status": {}})
    assert error.startswith(
        f'{ROOT}: Invalid value: {{"ID":"","Schema":"","Ref":null,"Description":"","Type":"object",'
    )
    assert error.endswith(
        ": only [Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength MinLength "
        "Pattern MaxItems MinItems UniqueItems MultipleOf Required Items Properties ExternalDocs Example "
        "XPreserveUnknownFields XValidations] fields are allowed at the root of the schema if the status subresource "
        "is enabled"
    )


@pytest.mark.parametrize(
    ("schema", "wrong"),
    [
        ({"type": "integer", "default": "x"}, ['Invalid value: "string":  in body must be of type integer: "string"']),
        ({**NAMED, "default": {"y": 1}}, ['Invalid value: {"y":1}: must not have unknown fields']),
        ({"type": "string", "default": "abc", "maxLength": 2}, ["Too long: may not be more than 2 bytes"]),
        (
            {"type": "array", "items": NAMED, "default": [{"k": "x"}, {"z": 1}]},
            ['Invalid value: [{"k":"x"},{"z":1}]: must not have unknown fields'],
        ),
        ({"type": "object", "additionalProperties": True, "default": {"a": 1}}, []),
        ({"type": "object", "x-kubernetes-preserve-unknown-fields": True, "default": {"a": {"b": 1}}}, []),
    ],
)
def test_defaults_are_what_their_schema_allows(schema: Obj, wrong: list[str]) -> None:
    assert with_a(**schema) == [f"{AT_A}.default: {text}" for text in wrong]


def test_a_default_object_within_an_object_is_whole() -> None:
    embedded = {
        "type": "object",
        "x-kubernetes-embedded-resource": True,
        "x-kubernetes-preserve-unknown-fields": True,
    }
    assert with_a(**embedded, default={"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}}) == []
    assert with_a(**embedded, default={"apiVersion": "v1"}) == [f"{AT_A}.default.kind: Required value"]


def test_validation_rules_are_compiled_where_the_schema_is_right() -> None:
    rules = [{"rule": "self + 'x'"}]
    assert with_a(**{"type": "string", "x-kubernetes-validations": rules}) == [
        f"{AT_A}.x-kubernetes-validations[0].rule: Invalid value: "
        '{"Rule":"self + \'x\'","Message":"","MessageExpression":"","Reason":null,"FieldPath":"",'
        '"OptionalOldSelf":null}: cel expression must evaluate to a bool'
    ]
    assert with_a(**{"type": "string", "x-kubernetes-validations": [{"rule": "self != ''"}]}) == []


def test_schemas_that_differ_are_looked_at_apart() -> None:
    other = {"type": "object", "properties": {"spec": {"type": "foo"}}}
    (error,) = refused(definition(version(), version("v2", schema=other)))
    assert error.startswith("spec.versions[1].schema.openAPIV3Schema.properties[spec].type: Unsupported value")


# --- columns, scale, selectable fields, conversion ---------------------------------------------------


def test_columns_have_names_types_and_paths() -> None:
    columns = [
        {"name": "x", "type": "foo", "jsonPath": "spec.a"},
        {"name": "", "type": "string"},
        {"name": "z", "type": "string", "jsonPath": ".spec[", "format": "zz"},
    ]
    at = "spec.additionalPrinterColumns"
    assert refused(definition(version(additionalPrinterColumns=columns))) == [
        f'{at}[0].type: Invalid value: "foo": must be one of boolean,date,integer,number,string',
        f'{at}[0].JSONPath: Invalid value: "spec.a": must be a simple json path starting with .',
        f"{at}[1].name: Required value",
        f"{at}[1].JSONPath: Required value",
        f'{at}[2].format: Invalid value: "zz": must be one of byte,date,date-time,double,float,int32,int64,password',
    ]


def test_scale_knows_where_the_replicas_are() -> None:
    scale = {"specReplicasPath": "foo", "statusReplicasPath": ".spec.x", "labelSelectorPath": "[]"}
    at = "spec.subresources.scale"
    assert refused(definition(version(subresources={"scale": scale}))) == [
        f'{at}.specReplicasPath: Invalid value: "foo": must be a simple json path starting with .',
        f'{at}.statusReplicasPath: Invalid value: ".spec.x": should be a json path under .status',
        f'{at}.labelSelectorPath: Invalid value: "[]": must be a simple json path starting with .',
    ]
    assert refused(definition(version(subresources={"scale": {}}))) == [
        f"{at}.specReplicasPath: Required value",
        f"{at}.statusReplicasPath: Required value",
    ]


def test_selectable_fields_are_scalars_that_are_there() -> None:
    paths = [".spec.nope", ".spec", "x", ".metadata.name", ".spec['a']", ".", "..", "", ".spec.a", ".spec.a"]
    at = "spec.selectableFields"
    assert refused(definition(version(selectableFields=[{"jsonPath": path} for path in paths]))) == [
        f'{at}[0].jsonPath: Invalid value: ".spec.nope": is an invalid path: does not refer to a valid field',
        f'{at}[1].jsonPath: Invalid value: ".spec": must point to a field of type string, boolean or integer. '
        "Enum string fields and strings with formats are allowed.",
        f'{at}[2].jsonPath: Invalid value: "x": is an invalid path: expected [ or . but got: x',
        f'{at}[3].jsonPath: Invalid value: ".metadata.name": is an invalid path: does not refer to a valid field',
        f"{at}[4].jsonPath: Invalid value: \".spec['a']\": is an invalid path: array notation is not allowed",
        f'{at}[5].jsonPath: Invalid value: ".": is an invalid path: unexpected end of JSON path',
        f'{at}[6].jsonPath: Invalid value: "..": is an invalid path: does not refer to a valid field',
        f"{at}[7].jsonPath: Required value",
        f'{at}[9].jsonPath: Duplicate value: ".spec.a"',
    ]


def test_there_are_few_selectable_fields() -> None:
    properties = {f"f{index}": {"type": "integer"} for index in range(9)}
    fields = [{"jsonPath": f".{name}"} for name in properties]
    schema = {"type": "object", "properties": properties}
    assert refused(definition(version(schema=schema, selectableFields=fields))) == [
        "spec.selectableFields: Too many: 9: must have at most 8 items"
    ]


WEBHOOK = {"clientConfig": {"url": "https://example.com/c"}, "conversionReviewVersions": ["v1"]}


@pytest.mark.parametrize(
    ("conversion", "wrong"),
    [
        ({"strategy": "Foo"}, ['strategy: Unsupported value: "Foo": supported values: "None", "Webhook"']),
        (
            {"strategy": "Webhook"},
            [
                "webhookClientConfig: Required value: required when strategy is set to Webhook",
                "conversionReviewVersions: Required value",
            ],
        ),
        (
            {"strategy": "None", "webhook": WEBHOOK},
            [
                "webhookClientConfig: Forbidden: should not be set when strategy is not set to Webhook",
                "conversionReviewVersions: Forbidden: should not be set when strategy is not set to Webhook",
            ],
        ),
        (
            {"strategy": "Webhook", "webhook": {**WEBHOOK, "conversionReviewVersions": ["v9", "v9"]}},
            [
                'conversionReviewVersions[1]: Invalid value: "v9": duplicate version',
                'conversionReviewVersions: Invalid value: ["v9","v9"]: must include at least one of v1, v1beta1',
            ],
        ),
        (
            {"strategy": "Webhook", "webhook": {**WEBHOOK, "clientConfig": {}}},
            ["webhookClientConfig: Required value: exactly one of url or service is required"],
        ),
        ({"strategy": "Webhook", "webhook": WEBHOOK}, []),
    ],
)
def test_conversion_is_none_or_a_webhook(conversion: Obj, wrong: list[str]) -> None:
    assert refused(definition(conversion=conversion)) == [f"spec.conversion.{text}" for text in wrong]


def test_a_webhook_that_would_have_to_be_called_is_refused() -> None:
    conversion = {"strategy": "Webhook", "webhook": WEBHOOK}
    assert refused(definition(version(), version("v2"), conversion=conversion)) == [
        "spec.conversion.strategy: Forbidden: this server calls no webhooks: objects can be converted between versions "
        "by strategy None only"
    ]


def test_unknown_fields_are_kept_by_schemas_only() -> None:
    assert refused(definition(preserveUnknownFields=True)) == [
        "spec.preserveUnknownFields: Invalid value: true: cannot set to true, set x-kubernetes-preserve-unknown-fields "
        "to true in spec.versions[*].schema instead"
    ]


def test_unknown_formats_are_warned_of_once() -> None:
    warnings = RULES_OF_DEFINITIONS.warnings
    formats = {name: {"type": "string", "format": name} for name in ("foo", "date-time", "int64", "bar")}
    schema = {"type": "object", "properties": {**formats, "more": {"type": "string", "format": "foo"}}}
    made = definition(version(schema=schema))
    assert sorted(warnings(made, None)) == ['unrecognized format "bar"', 'unrecognized format "foo"']
    assert warnings(made, made) == []
    assert warnings(definition(), None) == []
