"""Attacks on the event loop of a real hub: whatever a tenant sends, no turn takes more than 50 ms of CPU time."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from urllib.parse import quote

import orjson
import pytest
from definitions import DEFINITIONS, STRING, THINGS, definition, struct, thing, version
from hub_harness import (
    APPLY_PATCH,
    CONFIG_MAPS,
    JSON_PATCH,
    MERGE_PATCH,
    PARTIAL_LIST,
    PROTOBUF,
    TABLE,
)
from hub_process import Client, HubProcess

from farflung.hub.catalog.openapi.handler import PROTOBUF_V2, PROTOBUF_V3
from farflung.machinery.errors import Obj

JSON, YAML = "application/json", "application/yaml"
ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
TREES, ROWS = (f"/apis/example.com/v1/namespaces/default/{plural}" for plural in ("trees", "rows"))
WIDE: Obj = {"metadata": {"name": "a"}, "spec": [{"a": "b"}] * 2_000}
MANY = range(100_000)
Attack = tuple[str, str, bytes, str]  #: method, path, body, and its media type or the accepted one


def named(rest: str) -> bytes:
    return b'{"metadata":{"name":"a"},' + rest.encode() + b"}"


def keyed(*entries: str) -> str:
    return '"data":{' + ",".join(entries) + "}"


def nested_aliases() -> str:
    lines = ["a0: &a0 [x,x,x,x,x,x,x,x,x,x]"]
    lines += [f"a{at}: &a{at} [{','.join([f'*a{at - 1}'] * 10)}]" for at in range(1, 10)]
    return "\n".join(lines)


def selector(of_fields: bool) -> str:
    name = "metadata.name" if of_fields else "k"
    terms = ",".join(f"{name}!=v{number}" for number in range(1_500))
    return f"{'fieldSelector' if of_fields else 'labelSelector'}={quote(terms, safe='!=,')}"


def attacks() -> Iterator[Attack]:
    posts: dict[str, tuple[bytes, str]] = {
        "objects within each other": (named('"data":' + '{"a":' * 200_000 + "1" + "}" * 200_000), JSON),
        "lists within each other": (named('"data":' + "[" * 1_000_000), JSON),
        "keys": (named(keyed(*(f'"k{one}":""' for one in MANY))), JSON),
        "equal keys": (named(keyed(*['"k":""'] * 200_000)), JSON),
        "unknown fields": (named(",".join(f'"k{one}":1' for one in MANY)), JSON),
        "aliases": (nested_aliases().encode(), YAML),
        "YAML keys": (("metadata: {name: y}\ndata:\n" + "".join(f" k{one}: v\n" for one in MANY)).encode(), YAML),
        "YAML lists": (b"a: " + b"[" * 8_000 + b"]" * 8_000, YAML),
        "protobuf fields": (b"k8s\0\x12\xf0\xf0\x01" + b"\x0a\x00" * 15_000, PROTOBUF),
    }
    for body, media in posts.values():
        yield "POST", f"{CONFIG_MAPS}?fieldValidation=Ignore", body, media
    yield "GET", f"{CONFIG_MAPS}?{selector(of_fields=False)}", b"", JSON
    yield "GET", f"{CONFIG_MAPS}?{selector(of_fields=True)}", b"", JSON
    yield "GET", f"{CONFIG_MAPS}?labelSelector={'(' * 20_000}", b"", JSON
    yield "GET", CONFIG_MAPS + "/a" * 10_000, b"", JSON
    yield "GET", f"{CONFIG_MAPS}?{'&'.join(f'a{one}=b' for one in range(2_000))}", b"", JSON
    yield (
        "PATCH",
        f"{CONFIG_MAPS}/p",
        b"[" + b'{"op":"copy","from":"/data","path":"/data/x"},' * 19 + b"{}]",
        JSON_PATCH,
    )
    applied = '{"apiVersion":"v1","kind":"ConfigMap",' + keyed(*(f'"k{one}":"v"' for one in range(30_000))) + "}"
    for manager in "ab":
        path = f"{CONFIG_MAPS}/applied?fieldManager={manager}&force=true"
        yield "PATCH", path, applied.encode(), APPLY_PATCH
    yield "PATCH", f"{CONFIG_MAPS}/applied", b'{"metadata":{"labels":{"a":"b"}}}', MERGE_PATCH


def reads_of_large_objects() -> Iterator[Attack]:
    """Objects of hundreds of kilobytes, in lists and initial events of every form."""
    rules = ",".join(f'{{"verbs":["get"],"apiGroups":["g{one}"],"resources":["r"]}}' for one in range(5_000))
    yield "POST", ROLES, named(f'"rules":[{rules}]'), JSON
    nested = ",".join(f'[[[[{{"a":{one}}}]]]]' for one in range(10_000))
    yield "POST", TREES, named(f'"apiVersion":"example.com/v1","kind":"Tree","spec":[{nested}]'), JSON
    for path in (ROLES, TREES):
        for accept in (YAML, TABLE, PARTIAL_LIST, PROTOBUF if path == ROLES else JSON):
            yield "GET", path, b"", accept
    yield "GET", f"{TREES}?watch=1&resourceVersion=0&timeoutSeconds=1&includeObject=Object", b"", TABLE


def large_definitions() -> Iterator[Attack]:
    """A schema of several hundred kilobytes, deep and wide, and every document that describes it."""
    part = struct(a=STRING | {"pattern": "^[a-z]+$"}, b={"type": "array", "items": struct(c=STRING)})
    described = definition(
        version(**{f"f{one}": part for one in range(2_000)}),
        version("v2", storage=False, **{f"g{one}": STRING for one in range(2_500)}),
        plural="larges",
        kind="Large",
    )
    yield "POST", DEFINITIONS, orjson.dumps(described), JSON
    eviction = {"apiVersion": "example.com/v1", "kind": "Large", "metadata": {"name": "p"}}
    yield "POST", "/api/v1/namespaces/default/pods/p/eviction", orjson.dumps(eviction), JSON
    for name in ("v1", "v2"):
        path = f"/apis/example.com/{name}/namespaces/default/larges"
        large = {"apiVersion": f"example.com/{name}", "kind": "Large", "metadata": {"name": name}, "spec": {}}
        yield "POST", path, orjson.dumps(large), JSON
        yield "GET", path, b"", TABLE
        yield "PATCH", f"{path}/{name}?fieldManager=m", orjson.dumps(large | {"spec": {"f1": {"a": "b"}}}), APPLY_PATCH
    yield "GET", "/openapi/v3", b"", JSON
    for accept in (JSON, PROTOBUF_V3):
        yield "GET", "/openapi/v3/apis/example.com/v1", b"", accept
    for accept in (JSON, PROTOBUF_V2):
        yield "GET", "/openapi/v2", b"", accept
    yield "DELETE", f"{DEFINITIONS}/larges.example.com", b"", JSON


def reads_of_wide_rows() -> Iterator[Attack]:
    for path in (ROWS, f"{ROWS}/a", f"{ROWS}?watch=1&resourceVersion=0&timeoutSeconds=1"):
        yield "GET", path, b"", TABLE


FAMILIES = (attacks, reads_of_large_objects, reads_of_wide_rows, large_definitions)


def open_definition(plural: str, kind: str, columns: int = 0) -> Obj:
    """Of objects with any fields, and of printer columns that search all of them."""
    described = version()
    described["schema"] = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    found = [{"name": f"c{one}", "type": "string", "jsonPath": "..a"} for one in range(columns)]
    return definition(described | {"additionalPrinterColumns": found}, plural=plural, kind=kind)


def long_turns(client: Client) -> int:
    return int(metric(client, "farflung_event_loop_long_turns_total"))


def metric(client: Client, name: str) -> float:
    return float(client.text("/metrics").partition(f"\n{name} ")[2].split()[0])


@pytest.mark.slow
def test_no_attack_holds_the_event_loop(tmp_path: Path) -> None:
    loops = "self.texts.all(x, self.texts.all(y, x != y || x == y || x != '%d'))"
    texts = {"type": "array", "maxItems": 300, "items": {"type": "string", "maxLength": 3}}
    described = version()
    rules = [{"rule": loops % number} for number in range(12)]
    described["schema"]["openAPIV3Schema"]["properties"]["spec"] = struct(texts=texts) | {
        "x-kubernetes-validations": rules
    }
    hub = HubProcess(tmp_path / "hub")
    try:
        with hub.client() as client:
            client.create(CONFIG_MAPS, {"metadata": {"name": "p"}, "data": {"a": "b"}})
            client.create(DEFINITIONS, definition(described))  # in its first second a hub loads the modules for rules
            before = long_turns(client)
            client.create(THINGS, thing("t", texts=["abc"] * 150))
            client.create(DEFINITIONS, open_definition("trees", "Tree"))
            client.create(DEFINITIONS, open_definition("rows", "Row", columns=200))
            client.create(ROWS, {"apiVersion": "example.com/v1", "kind": "Row"} | WIDE)
            for method, path, body, media in chain.from_iterable(family() for family in FAMILIES):
                answer = client.request(method, path, body or None, {"Content-Type" if body else "Accept": media})
                assert answer.status < 500, (method, path[:100], answer.body[:300])
                longest = metric(client, "farflung_event_loop_longest_turn_seconds")
                assert long_turns(client) == before, (method, path[:100], body[:100], media, longest)
        assert hub.trouble() == []
    finally:
        hub.kill()
