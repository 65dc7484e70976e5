"""What the kubectls of this machine make of our documents: the oldest and the newest that there are."""

import asyncio
import re
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import orjson
import pytest

from farflung.apis.builtin import kinds as builtin
from farflung.apis.builtin.catalog import Catalog
from farflung.apis.definitions import META, definition
from farflung.apis.resource import Resource
from farflung.http.messages import Request, Response
from farflung.http.server import serve
from farflung.hub.catalog.discovery import Documents
from farflung.hub.catalog.openapi.handler import OpenAPI
from farflung.machinery.errors import ApiError

PREFIX = "/clusters/root"

GADGETS = Resource(
    "example.com", "v1", "gadgets", "Gadget", True, "com.example.v1.Gadget", list_kind="GadgetList", custom=True
)
GADGET = {
    "description": "Gadget is a thing.",
    "type": "object",
    "required": ["spec"],
    "properties": {
        "metadata": {"$ref": f"#/definitions/{META}ObjectMeta", "description": "What is known of it."},
        "spec": {
            "type": "object",
            "required": ["size"],
            "properties": {
                "size": {"type": "integer", "description": "how big"},
                "mode": {"type": "string", "enum": ["fast", "slow"]},
                "parts": {"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string"}}}},
                "tags": {"type": "object", "additionalProperties": {"type": "string"}},
            },
        },
    },
    "x-kubernetes-group-version-kind": [{"group": "example.com", "version": "v1", "kind": "Gadget"}],
}


def kubectls() -> list[Path]:
    found = shutil.which("kubectl")
    versions = sorted(Path(found).resolve().parent.glob("kubectl.1.*")) if found else []
    return [versions[0], versions[-1]] if versions else []


def brought(resource: Resource) -> dict:
    return {GADGETS.definition: GADGET} if resource is GADGETS else {}


class Hub:
    """Discovery and OpenAPI, and a place that takes whatever is created."""

    def __init__(self) -> None:
        catalog = Catalog((*builtin.BUILTIN, GADGETS))
        self.documents, self.openapi = Documents(catalog), OpenAPI(catalog, brought)
        self.asked: list[str] = []

    def __call__(self, request: Request) -> Response:
        path = request.path.removeprefix(PREFIX)
        self.asked.append(f"{request.method} {path}")
        if request.method == "POST":
            return Response(201, request.body)
        try:
            answer = self.documents.answer(request, path) or self.openapi.answer(request, path)
        except ApiError as error:
            return Response(error.code, orjson.dumps(error.status()))
        return answer or Response(404, orjson.dumps({"kind": "Status", "status": "Failure", "code": 404}))


@pytest.fixture
async def hub() -> AsyncIterator[tuple[Hub, str]]:
    hub = Hub()
    server = await serve(hub, host="127.0.0.1", port=0, tls=None)
    yield hub, f"http://127.0.0.1:{server.port}{PREFIX}"
    await server.stop(1)


async def run(kubectl: Path, address: str, cache: Path, *arguments: str, stdin: str = "") -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        kubectl,
        f"--server={address}",
        f"--cache-dir={cache}",
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={"HOME": str(cache), "KUBECONFIG": "/dev/null"},
    )
    output, _ = await process.communicate(stdin.encode())
    return process.returncode or 0, output.decode()


def lines(output: str) -> list[str]:
    """Without the blanks between columns and at the ends."""
    return [" ".join(line.split()) for line in output.splitlines() if line.strip()]


async def test_kubectl_explains_resources(hub, tmp_path):
    _, address = hub
    for kubectl in kubectls():
        cache = tmp_path / kubectl.name
        code, output = await run(kubectl, address, cache, "explain", "pod.spec.containers.ports", "--recursive")
        assert code == 0, output
        shown = lines(output)
        assert shown[:3] == ["KIND: Pod", "VERSION: v1", "FIELD: ports <[]ContainerPort>"]
        assert "containerPort <integer> -required-" in shown
        assert ("enum: SCTP, TCP, UDP" in shown) == (kubectl.name >= "kubectl.1.30")
        code, output = await run(kubectl, address, cache, "explain", "deploy.spec.strategy.rollingUpdate")
        assert "maxSurge <IntOrString>" in lines(output)
        code, output = await run(kubectl, address, cache, "explain", "deployment.spec.nope")
        assert (code, lines(output)[-1]) == (1, 'error: field "nope" does not exist')


async def test_kubectl_explains_the_installed_schemas(hub, tmp_path):
    """The recordings of a real server leave this out."""
    _, address = hub
    newest = kubectls()[-1]
    code, output = await run(newest, address, tmp_path, "explain", "job.spec.completions")
    described = definition("io.k8s.api.batch.v1.JobSpec")["properties"]["completions"]["description"]
    assert (code, " ".join(lines(output)).partition("DESCRIPTION: ")[2]) == (0, " ".join(described.split()))
    code, output = await run(newest, address, tmp_path, "explain", "secrets", "--recursive")
    shown = {line.split()[0] for line in output.splitlines() if re.match(r" {2}\w", line)}
    assert (code, shown) == (0, definition("io.k8s.api.core.v1.Secret")["properties"].keys())


async def test_kubectl_explains_by_version_2(hub, tmp_path):
    _, address = hub
    for kubectl in kubectls():
        arguments = ("explain", "deploy.spec", "--recursive", "--output=plaintext-openapiv2")
        code, output = await run(kubectl, address, tmp_path / kubectl.name, *arguments)
        assert code == 0, output
        assert {"RESOURCE: spec <Object>", "maxSurge <string>", "containerPort <integer>"} <= set(lines(output))


async def test_kubectl_explains_a_custom_resource(hub, tmp_path):
    _, address = hub
    for kubectl in kubectls():
        code, output = await run(kubectl, address, tmp_path / kubectl.name, "explain", "gadgets", "--recursive")
        assert code == 0, output
        shown = lines(output)
        assert shown[:5] == ["GROUP: example.com", "KIND: Gadget", "VERSION: v1", "DESCRIPTION:", "Gadget is a thing."]
        assert {"metadata <ObjectMeta>", "spec <Object> -required-", "parts <[]Object>"} <= set(shown)
        assert "tags <map[string]string>" in shown


async def test_kubectl_leaves_validation_to_us_and_asks_for_a_document_once(hub, tmp_path):
    served, address = hub
    manifest = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d, namespace: default}\nnope: 1\n"
    for kubectl in kubectls():
        served.asked.clear()
        for arguments in (("create", "--dry-run=server"), ("create",)):
            code, output = await run(kubectl, address, tmp_path / kubectl.name, *arguments, "-f", "-", stdin=manifest)
            assert (code, "deployment.apps/d created" in output) == (0, True), output
        assert served.asked.count("POST /apis/apps/v1/namespaces/default/deployments") == 2
        assert served.asked.count("GET /openapi/v3/apis/apps/v1") == 1


async def test_kubectl_refuses_what_is_no_object(hub, tmp_path):
    _, address = hub
    for kubectl in kubectls():
        code, output = await run(kubectl, address, tmp_path / kubectl.name, "create", "-f", "-", stdin="just a string")
        assert code == 1
        assert 'error validating "STDIN": error validating data: invalid object to validate' in output
