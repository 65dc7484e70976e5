"""Whole documents as JSON values: Swagger 2.0 of all groups, OpenAPI 3.0 of one group and version."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import Final

from farflung.apis.builtin.catalog import Catalog
from farflung.apis.definitions import META, VERSION
from farflung.apis.resource import Resource
from farflung.hub.catalog.openapi import operations
from farflung.hub.catalog.openapi.operations import Operation, PathOperations
from farflung.hub.catalog.openapi.parameters import PARAMETERS, Parameter
from farflung.hub.catalog.openapi.schemas import V2, V3, Own, Schemas
from farflung.machinery.errors import Obj

INFO: Final = {"title": "Kubernetes", "version": f"v{VERSION}.0"}
UNAUTHORIZED: Final = {"401": {"description": "Unauthorized"}}
REASONS: Final = {"200": "OK", "201": "Created", "202": "Accepted"}
BODY: Final = "body"


def swagger(paths: Iterable[PathOperations], own: Own) -> Obj:
    """Version 2: all paths, and the definitions that they need."""
    parameters = {name: swagger_parameter(one) for name, one in PARAMETERS.items()}
    return {"swagger": "2.0", "info": INFO, **swagger_part(paths, own), "parameters": parameters}


def swagger_part(paths: Iterable[PathOperations], own: Own, known: Container[str] = ()) -> Obj:
    """The paths and definitions to add to a document that has some definitions already."""
    schemas = Schemas(V2, own)
    served = list(paths)
    definitions = schemas.closure(needed(served))
    return {
        "paths": {path.path: swagger_path(path, schemas) for path in served},
        "definitions": {name: one for name, one in definitions.items() if name not in known},
    }


def openapi(paths: Iterable[PathOperations], own: Own) -> Obj:
    """Version 3."""
    schemas = Schemas(V3, own)
    served = list(paths)
    return {
        "openapi": "3.0.0",
        "info": INFO,
        "paths": {path.path: openapi_path(path, schemas) for path in served},
        "components": {"schemas": schemas.closure(needed(served))},
    }


def needed(paths: Iterable[PathOperations]) -> set[str]:
    """The definitions that operations refer to directly."""
    found: set[str] = set()
    for path in paths:
        for operation in path.operations:
            found.update(operation.answers.values())
            if operation.body is not None:
                found.add(operation.body)
    return found


# --- version 2 ------------------------------------------------------------------------------------


def swagger_path(path: PathOperations, schemas: Schemas) -> Obj:
    item: Obj = {one.method: swagger_operation(one, schemas) for one in path.operations}
    if path.parameters:
        item["parameters"] = [swagger_reference(name) for name in path.parameters]
    return item


def swagger_operation(operation: Operation, schemas: Schemas) -> Obj:
    patches = operation.method == "patch"  # kubectl before 1.27 searches dryRun there, and follows no references
    parameters = [
        swagger_parameter(PARAMETERS[name]) if patches and name == "dryRun" else swagger_reference(name)
        for name in operation.parameters
    ]
    if operation.body is not None:
        schema = schema_of(operation.body, schemas)
        parameters.insert(0, {"name": BODY, "in": BODY, "required": operation.body_required, "schema": schema})
    return {
        **heading(operation),
        "consumes": operation.consumes,
        "produces": operation.produces,
        "parameters": parameters,
        "responses": {
            **{
                code: {"description": REASONS[code], "schema": schema_of(definition, schemas)}
                for code, definition in operation.answers.items()
            },
            **UNAUTHORIZED,
        },
    }


def swagger_reference(name: str) -> Obj:
    return {"$ref": f"#/parameters/{name}"}


def swagger_parameter(parameter: Parameter) -> Obj:
    return {**described(parameter), "type": parameter.type, "uniqueItems": True}


# --- version 3 ------------------------------------------------------------------------------------


def openapi_path(path: PathOperations, schemas: Schemas) -> Obj:
    item: Obj = {one.method: openapi_operation(one, schemas) for one in path.operations}
    if path.parameters:
        item["parameters"] = [OPENAPI_PARAMETERS[name] for name in path.parameters]
    return item


def openapi_operation(operation: Operation, schemas: Schemas) -> Obj:
    rendered = {
        **heading(operation),
        "responses": {
            **{
                code: {
                    "description": REASONS[code],
                    "content": content(operation.produces, schema_of(definition, schemas)),
                }
                for code, definition in operation.answers.items()
            },
            **UNAUTHORIZED,
        },
    }
    if operation.parameters:
        rendered["parameters"] = [OPENAPI_PARAMETERS[name] for name in operation.parameters]
    if operation.body is not None:
        body: Obj = {"content": content(operation.consumes, schema_of(operation.body, schemas))}
        if operation.body_required:
            body["required"] = True
        rendered["requestBody"] = body
    return rendered


def content(media_types: Sequence[str], schema: Obj) -> Obj:
    return {media: {"schema": schema} for media in media_types}


def openapi_parameter(parameter: Parameter) -> Obj:
    return {**described(parameter), "schema": {"type": parameter.type, "uniqueItems": True}}


# --- both -----------------------------------------------------------------------------------------


def heading(operation: Operation) -> Obj:
    head: Obj = {
        "tags": [operation.tag],
        "description": operation.description,
        "operationId": operation.identity,
    }
    if operation.action:
        head["x-kubernetes-action"] = operation.action
        head["x-kubernetes-group-version-kind"] = operation.kind
    return head


def described(parameter: Parameter) -> Obj:
    head: Obj = {"name": parameter.name, "in": parameter.place, "description": parameter.description}
    if parameter.place == "path":
        head["required"] = True
    return head


def schema_of(definition: str, schemas: Schemas) -> Obj:
    """A reference; `object` for a type without a definition."""
    if definition == operations.TEXT:
        return {"type": "string"}
    return schemas.reference(definition) if schemas.known(definition) else {"type": "object"}


OPENAPI_PARAMETERS: Final = {name: openapi_parameter(one) for name, one in PARAMETERS.items()}


# --- which paths belong to which document ---------------------------------------------------------


def document_names(catalog: Catalog) -> list[str]:
    """The names of the version 3 documents: `api/v1`, `apis/apps/v1`, `version` …"""
    names = {"api", "apis", "version"}
    for group in catalog.groups:
        top = f"apis/{group}" if group else "api"
        names.add(top)
        names.update(f"{top}/{version}" for version in catalog.versions(group))
    return sorted(names)


def resources_of(catalog: Catalog, name: str) -> tuple[Resource, ...]:
    """The resources in a document; empty unless it is that of a group and version."""
    match name.split("/"):
        case ["api", version]:
            return catalog.resources("", version)
        case ["apis", group, version]:
            return catalog.resources(group, version)
        case _:
            return ()


def paths_in(name: str, resources: Sequence[Resource]) -> list[PathOperations]:
    """The paths in a document."""
    path = f"/{name}/"
    match name.split("/"):
        case ["version"]:
            definition = "io.k8s.apimachinery.pkg.version.Info"
            return [operations.discovery(path, "version", "getCodeVersion", "get the version", definition)]
        case ["api"]:
            return [operations.discovery(path, "core", "getCoreAPIVersions", "list versions", f"{META}APIVersions")]
        case ["apis"]:
            return [operations.discovery(path, "apis", "getAPIVersions", "list groups", f"{META}APIGroupList")]
        case ["apis", group]:
            tag, title = operations.titles(group, "")
            return [operations.discovery(path, tag, f"get{title}APIGroup", "describe the group", f"{META}APIGroup")]
        case [_, *group, version]:
            tag, title = operations.titles(group[0] if group else "", version)
            definition = f"{META}APIResourceList"
            listed = operations.discovery(path, tag, f"get{title}APIResources", "list resources", definition)
            return [listed, *(one for resource in resources for one in operations.paths_of(resource))]
    return []
