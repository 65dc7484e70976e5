"""`farflung import-kinds`: kinds of a cluster as an APIExport of a workspace."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import click
import orjson

from farflung.apis.kcp.imported import NotImportable, OpenApiDocument, export_of, resource_schema, schema_of_definition
from farflung.apis.kcp.names import API_EXPORTS, API_RESOURCE_SCHEMAS
from farflung.apis.names import CUSTOM_RESOURCE_DEFINITIONS
from farflung.cli.connection import modify, open_kubeconfig
from farflung.cli.output import yaml_text
from farflung.cli.settings import ImportOptions, ServerOptions
from farflung.client.discovery import DiscoveredResource, ServedResources, discover
from farflung.client.errors import AlreadyExists, NotFound
from farflung.client.rest import Client
from farflung.lib.errors import UserError
from farflung.machinery.errors import Obj

STATUS: Final = "status"


def import_kinds(names: tuple[str, ...], options: ImportOptions, connection: ServerOptions) -> None:
    """`names`: like `jobs.batch`; none: all CustomResourceDefinitions of the cluster."""

    async def run(workspace: Client) -> list[Obj]:
        if not options.dry_run:
            await workspace.raw(f"/apis/{API_EXPORTS.api_version}")  # is it there? ask before the cluster is read
        async with open_kubeconfig(options.source, options.from_context) as cluster:
            schemas = await read_schemas(cluster, names)
        return schemas if options.dry_run else await offer(workspace, options.export, schemas)

    documents = modify(connection, run)
    if options.dry_run:
        click.echo("---\n".join(map(yaml_text, [*documents, export_of(options.export, None, documents)])), nl=False)
        return
    for document in documents:
        click.echo(f"{document['kind'].lower()}.apis.kcp.io/{document['metadata']['name']} {document['written']}")
    click.echo(f"Bind them in a workspace: kubectl kcp bind apiexport WORKSPACE:{options.export}", err=True)


# --- the cluster ----------------------------------------------------------------------------------


async def read_schemas(cluster: Client, names: Iterable[str]) -> list[Obj]:
    """APIResourceSchemas of the kinds.  Raises UserError."""
    definitions = {one["metadata"]["name"]: one for one in await cluster.list(CUSTOM_RESOURCE_DEFINITIONS)}
    if not names:
        if not definitions:
            raise UserError("the cluster has no CustomResourceDefinitions; name the kinds to import, like jobs.batch")
        return [schema_of_definition(one) for one in definitions.values()]
    served = await discover(cluster)
    documents: dict[str, OpenApiDocument] = {}
    found = []
    for name in names:
        if name in definitions:
            found.append(schema_of_definition(definitions[name]))
            continue
        resource = find_resource(served, name)
        path = f"apis/{resource.collection.api_version}" if resource.collection.group else "api/v1"
        if path not in documents:
            documents[path] = OpenApiDocument(orjson.loads(await cluster.raw(f"/openapi/v3/{path}")))
        found.append(schema_of_resource(resource, documents[path]))
    return found


def find_resource(served: ServedResources, name: str) -> DiscoveredResource:
    plural, _, group = name.partition(".")
    resource = served.find(group, plural)
    if resource is None:
        alike = sorted(
            f"{one.collection.plural}.{one.collection.group}".rstrip(".")
            for one in served.resources()
            if plural in (one.collection.plural, one.singular, one.collection.kind.lower(), *one.short_names)
        )
        hint = f"did you mean {' or '.join(alike)}?" if alike else "`kubectl api-resources` lists its kinds"
        raise UserError(f"the cluster does not serve {name}; {hint}")
    return resource


def schema_of_resource(resource: DiscoveredResource, document: OpenApiDocument) -> Obj:
    collection = resource.collection
    try:
        schema = document.structural(collection.group, collection.version, collection.kind)
    except NotImportable as error:
        raise UserError(f"{collection.kind} of {collection.api_version} cannot be imported: {error}") from None
    names = {
        "plural": collection.plural,
        "singular": resource.singular or collection.kind.lower(),
        "kind": collection.kind,
        "listKind": f"{collection.kind}List",
        **({"shortNames": list(resource.short_names)} if resource.short_names else {}),
        **({"categories": list(resource.categories)} if resource.categories else {}),
    }
    version = {
        "name": collection.version,
        "served": True,
        "storage": True,
        "schema": schema,
        "subresources": {STATUS: {}} if STATUS in resource.subresources else {},
    }
    return resource_schema(collection.group, names, "Namespaced" if resource.namespaced else "Cluster", [version])


# --- the workspace --------------------------------------------------------------------------------


async def offer(workspace: Client, name: str, schemas: list[Obj]) -> list[Obj]:
    """Write the schemas and the APIExport.  Returns what was written, each with the word for it."""
    written = []
    for schema in schemas:
        try:
            await workspace.create(API_RESOURCE_SCHEMAS, schema)
            written.append(schema | {"written": "created"})
        except AlreadyExists:
            written.append(schema | {"written": "unchanged"})
    try:
        existing: Obj | None = await workspace.get(API_EXPORTS, name)
    except NotFound:
        existing = None
    wanted = export_of(name, existing, schemas)
    if existing is None:
        await workspace.create(API_EXPORTS, wanted)
        word = "created"
    elif wanted["spec"] == existing["spec"]:
        word = "unchanged"
    else:
        await workspace.update(API_EXPORTS, wanted)
        word = "configured"
    return [*written, wanted | {"written": word}]
