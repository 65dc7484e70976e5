"""What access control, custom resources and the end of a namespace cost."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, replace
from typing import Any

import orjson
import uvloop
from generators import Rate, choose, percentile
from http_client import Connection, Server, ask, load

RBAC = "/apis/rbac.authorization.k8s.io/v1"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
THINGS = "/apis/bench.example.com/v1/namespaces/{}/things"
CONNECTIONS = 16


def post(server: Server, path: str, body: dict[str, Any]) -> dict[str, Any]:
    status, answer = uvloop.run(ask(server, "POST", path, orjson.dumps(body)))
    if status != 201:
        raise SystemExit(f"POST {path} was answered with {status}: {answer[:300]!r}")
    made: dict[str, Any] = orjson.loads(answer)
    return made


def post_all(server: Server, requests: list[tuple[str, dict[str, Any]]]) -> Rate:
    sent = [("POST", path, orjson.dumps(body)) for path, body in requests]
    seconds, delays = uvloop.run(load(server, CONNECTIONS, sent))
    return Rate(len(delays) / seconds, percentile(delays, 50), percentile(delays, 99))


# --- access ---------------------------------------------------------------------------------------


def somebody(server: Server, namespace: str, roles: int) -> Server:
    """The server as a ServiceAccount sees it that may read ConfigMaps, among so many roles and bindings, one in ten of
    which are its own."""
    post(server, f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": "reader"}})
    made: list[tuple[str, dict[str, Any]]] = []
    within = f"{RBAC}/namespaces/{namespace}"
    for number in range(roles):
        name = f"role-{number}"
        rules = [{"apiGroups": ["apps"], "resources": [f"resource-{number}"], "verbs": ["get", "list"]}]
        if number == roles // 2:
            rules.append({"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]})
        account = "reader" if number % 10 == 0 else f"other-{number}"
        subject = {"kind": "ServiceAccount", "name": account, "namespace": namespace}
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
        made.append((f"{within}/roles", {"metadata": {"name": name}, "rules": rules}))
        made.append(
            (f"{within}/rolebindings", {"metadata": {"name": name}, "subjects": [subject], "roleRef": reference})
        )
    post_all(server, made)
    token = post(server, f"/api/v1/namespaces/{namespace}/serviceaccounts/reader/token", {"spec": {}})
    return replace(server, token=token["status"]["token"])


# --- custom resources -----------------------------------------------------------------------------


def definition() -> dict[str, Any]:
    spec = {
        "type": "object",
        "required": ["size"],
        "properties": {
            "size": {"type": "integer", "minimum": 1},
            "text": {"type": "string", "maxLength": 4096},
            "mode": {"type": "string", "enum": ["slow", "fast"], "default": "slow"},
            "tags": {"type": "array", "maxItems": 16, "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
        },
        "x-kubernetes-validations": [{"rule": "self.mode == 'fast' || self.size < 1000000", "message": "too large"}],
    }
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}},
    }
    names = {"plural": "things", "kind": "Thing"}
    return {
        "metadata": {"name": "things.bench.example.com"},
        "spec": {"group": "bench.example.com", "scope": "Namespaced", "names": names, "versions": [version]},
    }


def thing(number: int) -> dict[str, Any]:
    return {
        "apiVersion": "bench.example.com/v1",
        "kind": "Thing",
        "metadata": {"name": f"x-{number:06}", "labels": {"app": "bench"}},
        "spec": {"size": number + 1, "text": "v" * 1024, "tags": ["a", "b"]},
    }


@dataclass(frozen=True)
class Defined:
    answered: float  #: milliseconds until the definition was answered
    usable: float  #: until the first object was


async def define(server: Server, namespace: str) -> Defined:
    connection = await Connection.open(server)
    try:
        started = time.perf_counter()
        status, _ = await connection.request("POST", DEFINITIONS, orjson.dumps(definition()))
        answered = time.perf_counter()
        used, answer = await connection.request("POST", THINGS.format(namespace), orjson.dumps(thing(900_000)))
        usable = time.perf_counter()
    finally:
        connection.close()
    if (status, used) != (201, 201):
        raise SystemExit(f"a custom resource was answered with {status} and {used}: {answer[:300]!r}")
    return Defined((answered - started) * 1e3, (usable - started) * 1e3)


def create_things(server: Server, namespace: str, count: int) -> Rate:
    path = THINGS.format(namespace)
    return post_all(server, [(path, thing(number)) for number in range(count)])


# --- the end of a namespace -----------------------------------------------------------------------


async def end_namespace(server: Server, name: str) -> float:
    """Delete a namespace, and say after how many seconds it was gone."""
    connection = await Connection.open(server)
    path = f"/api/v1/namespaces/{name}"
    try:
        started = time.perf_counter()
        await connection.request("DELETE", path)
        while (await connection.request("GET", path))[0] != 404:
            await asyncio.sleep(0.02)  # a watch would hear of it sooner, but may be opened too late
        return time.perf_counter() - started
    finally:
        connection.close()


def read_configmaps(server: Server, namespace: str, count: int) -> Rate:
    return choose(server).get(namespace, count, CONNECTIONS)
