"""Discovery documents: groups, versions and resources.

A document is encoded at the first request, and cached as long as its catalogue exists.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import orjson

from farflung.apis.builtin.catalog import Catalog
from farflung.apis.resource import Resource, Subresource
from farflung.http.messages import Request, Response
from farflung.hub.request import negotiation
from farflung.machinery.errors import Obj, method_not_allowed, no_such_path

AGGREGATED: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

CORE_VERSION: Final = "v1"  #: of the core group, which is listed even if it is empty

#: further paths of the root document
OTHER_PATHS: Final = (
    "/healthz",
    "/livez",
    "/metrics",
    "/openapi/v2",
    "/openapi/v3",
    "/readyz",
    "/version",
)


class Documents:
    """The discovery documents of one catalogue."""

    __slots__ = ("_catalog", "_encoded", "_open_ended", "_tags")

    def __init__(self, catalog: Catalog, *, open_ended: bool = False) -> None:
        """`open_ended`: resources may be added at any time, so every version of a group that is not built in exists,
        perhaps without resources."""
        self._catalog = catalog
        self._open_ended = open_ended
        self._encoded: dict[str, bytes] = {}
        self._tags: dict[str, str] = {}

    def answer(self, request: Request, path: str) -> Response | None:
        """The document at a path; None if there is none.  Raises ApiError."""
        parts = path.removesuffix("/").split("/")[1:]
        match parts:
            case []:
                return self._plain(request, "/", lambda: root(self._catalog))
            case ["api" | "apis" as top]:
                return self._top(request, top)
            case ["api", version]:
                return self._resources(request, "", version)
            case ["apis", group] if group and self._catalog.has_group(group):
                return self._plain(request, f"/apis/{group}", lambda: group_document(self._catalog, group))
            case ["apis", group, version] if group:
                return self._resources(request, group, version)
            case ["api", *_]:
                raise no_such_path()
            case _:
                return None

    def _top(self, request: Request, top: str) -> Response:
        """`/api` or `/apis`: the core group or all others; plain or aggregated."""
        if negotiation.aggregated(request.headers.get("accept", "")):
            return self._aggregated(request, top)
        if top == "apis":
            return self._plain(request, "/apis", lambda: groups(self._catalog))
        if request.method != "GET":
            raise method_not_allowed()
        found = self._catalog.versions("") or ([CORE_VERSION] if self._open_ended else [])
        return Response(200, orjson.dumps(versions(found, request.headers.get("host", ""))))

    def _aggregated(self, request: Request, top: str) -> Response:
        body = self._bytes(f"aggregated {top}", lambda: aggregated(self._catalog, core=top == "api"))
        tag = self._tags.get(top)
        if tag is None:
            tag = self._tags[top] = f'"{hashlib.sha256(body).hexdigest()}"'
        headers = [("ETag", tag), ("Vary", "Accept")]
        if request.headers.get("if-none-match") == tag:
            return Response(304, b"", AGGREGATED, headers)
        return Response(200, body, AGGREGATED, headers)

    def _resources(self, request: Request, group: str, version: str) -> Response | None:
        if version not in self._catalog.versions(group):
            return self._nothing(request, group, version)
        if request.method != "GET":
            raise method_not_allowed()
        name = f"/apis/{group}/{version}"
        return self._plain(request, name, lambda: resource_list(self._catalog, group, version))

    def _nothing(self, request: Request, group: str, version: str) -> Response | None:
        """A version without resources."""
        if not group and not (self._open_ended and version == CORE_VERSION):
            raise no_such_path()
        if group and self._open_ended and self._catalog.is_builtin(group):
            raise no_such_path()
        if not self._open_ended:
            return None
        if request.method != "GET":
            raise method_not_allowed()
        negotiation.plain(request.headers.get("accept", ""))
        return Response(200, orjson.dumps(resource_list(self._catalog, group, version)))

    def _plain(self, request: Request, name: str, make: Callable[[], Any]) -> Response:
        negotiation.plain(request.headers.get("accept", ""))
        return Response(200, self._bytes(name, make))

    def _bytes(self, name: str, make: Callable[[], Any]) -> bytes:
        encoded = self._encoded.get(name)
        if encoded is None:
            encoded = self._encoded[name] = orjson.dumps(make())
        return encoded


def root(catalog: Catalog) -> Obj:
    """`/`: all paths."""
    paths = ["/api", "/apis", *OTHER_PATHS]
    for group in catalog.groups:
        top = f"/apis/{group}" if group else "/api"
        paths += [f"{top}/{version}" for version in catalog.versions(group)]
        if group:
            paths.append(top)
    return {"paths": sorted(paths)}


def versions(found: Sequence[str], host: str) -> Obj:
    """`/api`"""
    addresses = [{"clientCIDR": "0.0.0.0/0", "serverAddress": host}]
    return {"kind": "APIVersions", "versions": found, "serverAddressByClientCIDRs": addresses}


def groups(catalog: Catalog) -> Obj:
    """`/apis`"""
    named = [described(catalog, group) for group in catalog.groups if group]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": named}


def group_document(catalog: Catalog, group: str) -> Obj:
    """`/apis/apps`"""
    return {"kind": "APIGroup", "apiVersion": "v1", **described(catalog, group)}


def described(catalog: Catalog, group: str) -> Obj:
    served = [{"groupVersion": f"{group}/{version}", "version": version} for version in catalog.versions(group)]
    return {"name": group, "versions": served, "preferredVersion": served[0]}


def resource_list(catalog: Catalog, group: str, version: str) -> Obj:
    """`/api/v1` or `/apis/apps/v1`"""
    items: list[Obj] = []
    for resource in listed_resources(catalog, group, version):
        items.append(listed(resource))
        items += [listed_subresource(resource, one) for one in resource.subresources]
    head: Obj = {"kind": "APIResourceList"}
    if group:
        head["apiVersion"] = "v1"
    return {**head, "groupVersion": f"{group}/{version}" if group else version, "resources": items}


def listed_resources(catalog: Catalog, group: str, version: str) -> Iterator[Resource]:
    return (one for one in catalog.resources(group, version) if one.is_listed)


def listed(resource: Resource) -> Obj:
    item: Obj = {
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": resource.verbs,
    }
    if resource.short_names:
        item["shortNames"] = resource.short_names
    if resource.categories:
        item["categories"] = resource.categories
    if resource.storage_version_hash:
        item["storageVersionHash"] = resource.storage_version_hash
    return item


def listed_subresource(resource: Resource, subresource: Subresource) -> Obj:
    item: Obj = {
        "name": f"{resource.plural}/{subresource.name}",
        "singularName": "",
        "namespaced": resource.namespaced,
    }
    if subresource.group:
        item["group"] = subresource.group
    if subresource.version:
        item["version"] = subresource.version
    return {**item, "kind": subresource.kind, "verbs": subresource.verbs}


def aggregated(catalog: Catalog, *, core: bool) -> Obj:
    """Aggregated discovery of the core group, or of all others."""
    items = [aggregated_group(catalog, group) for group in catalog.groups if (group == "") == core]
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    }


def aggregated_group(catalog: Catalog, group: str) -> Obj:
    served = [
        {
            "version": version,
            "resources": [aggregated_resource(one) for one in listed_resources(catalog, group, version)],
            "freshness": "Current",
        }
        for version in catalog.versions(group)
    ]
    return {"metadata": {"name": group} if group else {}, "versions": served}


def aggregated_resource(resource: Resource) -> Obj:
    item: Obj = {
        "resource": resource.plural,
        "responseKind": response_kind(resource, "", "", resource.kind),
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular,
        "verbs": resource.verbs,
    }
    if resource.short_names:
        item["shortNames"] = resource.short_names
    if resource.categories:
        item["categories"] = resource.categories
    if resource.subresources:
        item["subresources"] = [
            {
                "subresource": one.name,
                "responseKind": response_kind(resource, one.group, one.version, one.kind),
                "verbs": one.verbs,
            }
            for one in resource.subresources
        ]
    return item


def response_kind(resource: Resource, group: str, version: str, kind: str) -> Obj:
    """Built-in resources omit the group and version of their own; custom ones have them."""
    if resource.custom and not version:
        group, version = resource.group, resource.version
    return {"group": group, "version": version, "kind": kind}
