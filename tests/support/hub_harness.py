"""A hub without sockets, and a client that calls it as a function."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from memory_store import MemoryStore

from farflung.http.certificates import CertificateHolder, Certificates, new_authority, new_key
from farflung.http.messages import ComputedPiece, Piece, Pieces, Request, Response, Stream, Uncounted
from farflung.hub.admission.placement_specs import SpecProblem
from farflung.hub.assembly import Assembly, HubDependencies, Options, TimeAndRandomness
from farflung.hub.auth.credential_uses import CredentialUses
from farflung.hub.auth.default_roles import default_bindings, default_roles
from farflung.hub.auth.signing_keys import SigningKeys
from farflung.hub.auth.static_tokens import token_hash
from farflung.hub.catalog import objects
from farflung.hub.endpoints.logs import Nodes
from farflung.hub.request.user import ADMINISTRATORS, User
from farflung.lib import ids
from farflung.machinery.errors import Obj
from farflung.store.base import Store

ADMIN_TOKEN = "the-token-of-the-administrator"
USER_TOKEN = "the-token-of-somebody"
USERS = {
    ADMIN_TOKEN: User("admin", (ADMINISTRATORS, "system:authenticated")),
    USER_TOKEN: User("somebody", ("system:authenticated",)),
}
ONE_CLUSTER = Options()  #: a hub without workspaces
NEW_UID = ids.Uids()  #: shared, because a new source draws many at once
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
PODS = "/api/v1/namespaces/default/pods"
SERVICES = "/api/v1/namespaces/default/services"

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
PARTIAL_LIST = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
PROTOBUF = "application/vnd.kubernetes.protobuf"

Query = Mapping[str, Any]


@cache
def signing_keys() -> SigningKeys:
    """The same for all hubs of a test run."""
    return SigningKeys.new()


@cache
def authority() -> Certificates:
    """A certificate authority without files, the same for all hubs of a test run."""
    key = new_key()
    return Certificates(Path("/nowhere"), new_authority(key, datetime.now(UTC), "farflung-ca"), key)


def hashed(users: Mapping[str, User]) -> dict[str, User]:
    """Users by the hashes of their tokens."""
    return {token_hash(token): user for token, user in users.items()}


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes
    content_type: str
    headers: tuple[tuple[str, str], ...]

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def message(self) -> str:
        """Of a failure Status."""
        status = self.json
        assert status["kind"] == "Status", status
        assert status["status"] == "Failure", status
        assert status["code"] == self.status, status
        return str(status["message"])

    @property
    def reason(self) -> str:
        return str(self.json.get("reason", ""))

    @property
    def warnings(self) -> list[str]:
        return [value for name, value in self.headers if name == "Warning"]

    @property
    def version(self) -> int:
        """The resourceVersion of the object or list."""
        return int(self.json["metadata"]["resourceVersion"])

    @property
    def names(self) -> list[str]:
        return [item["metadata"]["name"] for item in self.json["items"]]


class Collector:
    """A sink that keeps what was written."""

    def __init__(self, stop: Callable[[], None]) -> None:
        self._stop = stop
        self._news = asyncio.Event()
        self._behind: list[bytes] | None = None  #: data behind a computed piece
        self.data = b""
        self.closed = False
        self.aborted = False

    @property
    def buffered(self) -> int:
        return 0

    def begin(self, pieces: Pieces) -> None:
        self._take(pieces(Uncounted()))

    def _take(self, pieces: Iterator[Piece | ComputedPiece]) -> None:
        """Later data waits behind computed pieces."""
        for piece in pieces:
            if isinstance(piece, asyncio.Future):
                self._behind = self._behind or []
                piece.add_done_callback(lambda done: self._go_on(done, pieces))
                return
            self._keep(bytes(piece))
        behind, self._behind = self._behind, None
        for data in behind or ():
            self._keep(data)

    def _go_on(self, computed: ComputedPiece, pieces: Iterator[Piece | ComputedPiece]) -> None:
        self._keep(computed.result())
        self._take(pieces)

    async def room(self) -> None: ...

    def write(self, data: bytes) -> None:
        if self._behind is None:
            self._keep(data)
        else:
            self._behind.append(data)

    def _keep(self, data: bytes) -> None:
        if not self.closed:
            self.data += data
            self._news.set()

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._news.set()
            asyncio.get_running_loop().call_soon(self._stop)

    def abort(self) -> None:
        self.aborted = True
        self.close()

    async def until(self, done: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not done():
                self._news.clear()
                await self._news.wait()


class Watch:
    """An open watch and the events it brought."""

    def __init__(self, stream: Stream) -> None:
        self.content_type = stream.content_type
        self._stream = stream
        self._sink = Collector(stream.stop)
        stream.start(self._sink)

    @property
    def events(self) -> list[Obj]:
        return [json.loads(line) for line in self._sink.data.splitlines()]

    @property
    def lines(self) -> list[bytes]:
        """Events as they came."""
        return self._sink.data.splitlines()

    @property
    def changes(self) -> list[tuple[str, str]]:
        """(type, name) of every event; of a bookmark, its resourceVersion instead of a name."""
        return [
            (event["type"], event["object"]["metadata"].get("name", event["object"]["metadata"].get("resourceVersion")))
            for event in self.events
        ]

    async def next(self, count: int) -> list[Obj]:
        """All events, as soon as there are so many."""
        await self._sink.until(lambda: self._sink.data.count(b"\n") >= count)
        return self.events

    async def end(self) -> list[Obj]:
        """All events, as soon as the stream has ended."""
        await self._sink.until(lambda: self._sink.closed)
        return self.events

    @property
    def closed(self) -> bool:
        return self._sink.closed

    @property
    def aborted(self) -> bool:
        return self._sink.aborted

    def leave(self) -> None:
        """As a client that goes away."""
        if not self._sink.closed:
            self._sink.closed = True
            self._stream.stop()


class LocalHub:
    """The hub on a store, with a clock and name suffixes that tests may set."""

    def __init__(
        self,
        store: Store,
        *,
        options: Options = ONE_CLUSTER,
        users: Mapping[str, User] = USERS,
        new_uid: Callable[[], str] = NEW_UID,
        longest_watch: float = 3600,
        nodes: Nodes | None = None,
        placement_problem: SpecProblem | None = None,
    ) -> None:
        """`users`: by their tokens."""
        self.store = store
        self.now = datetime(2024, 5, 1, 12, 0, 0, tzinfo=UTC)
        self.suffix: Callable[[], str] = ids.random_suffix
        sources = TimeAndRandomness(
            clock=lambda: self.now,
            new_uid=new_uid,
            random_suffix=lambda: self.suffix(),
            random_bytes=lambda size: hashlib.sha256(new_uid().encode()).digest()[:size],
            watch_seconds=lambda timeout: min(timeout or longest_watch, longest_watch),
        )
        self.certificates = CertificateHolder(authority())
        self.uses = CredentialUses()
        dependencies = HubDependencies(
            store,
            signing_keys(),
            self.certificates,
            tokens=hashed(users),
            nodes=nodes,
            uses=self.uses,
            placement_problem=placement_problem,
        )
        assembly = self.assembly = Assembly(dependencies, options, sources)
        self.authorizer, self.accounts, self.authenticator = (
            assembly.authorizer,
            assembly.accounts,
            assembly.authenticator,
        )
        self.quotas, self.policies, self.watches = assembly.quotas, assembly.policies, assembly.watches
        self.function = assembly.hub
        self.token: str | None = ADMIN_TOKEN

    @classmethod
    def in_memory(cls) -> LocalHub:
        return cls(MemoryStore(stamp=objects.stamp))

    def close(self) -> None:
        """End the worker processes, if expensive requests started some."""
        self.assembly.workers.close()
        self.assembly.evaluators.close()

    async def furnish(self) -> LocalHub:
        """What controllers would create: the default namespace and its account."""
        await self.create("/api/v1/namespaces", {"metadata": {"name": "default"}})
        await self.create("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}})
        return self

    async def furnish_roles(self) -> LocalHub:
        """The default roles and bindings; nobody fills the aggregated ones."""
        for obj in (*default_roles(), *default_bindings()):
            await self.create(f"/apis/rbac.authorization.k8s.io/v1/{obj['kind'].lower()}s", obj)
        return self

    def later(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    @contextmanager
    def writes_nothing(self) -> Iterator[None]:
        before = self.store.revision
        yield
        assert self.store.revision == before, "something was written"

    # --- requests ---------------------------------------------------------------------------------

    def prepared(self, method: str, path: str, body: Any, query: Query | str, headers: Mapping[str, str]) -> Request:
        sent = dict(headers)
        if self.token is not None:
            sent.setdefault("authorization", f"Bearer {self.token}")
        sent.setdefault("user-agent", "test/1.0")
        if body is None:
            raw = b""
        elif isinstance(body, bytes):
            raw = body
        else:
            raw = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        if raw:
            sent.setdefault("content-type", "application/json")
        return Request(method, path, query if isinstance(query, str) else urlencode(query), sent, raw)

    async def answer(self, request: Request) -> Response | Stream:
        answer = self.function(request)
        return await answer if isinstance(answer, Awaitable) else answer

    async def request(
        self, method: str, path: str, body: Any = None, *, query: Query | str = "", **headers: str
    ) -> Answer:
        """Headers are keywords: `accept="application/yaml"`, `content_type=…`."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        answer = await self.answer(self.prepared(method, path, body, query, named))
        assert isinstance(answer, Response), "this is a watch"
        whole = await answer.read()
        return Answer(answer.status, whole, answer.content_type, tuple(answer.headers))

    async def get(self, path: str, query: Query | str = "", **headers: str) -> Answer:
        return await self.request("GET", path, query=query, **headers)

    async def post(self, path: str, body: Any = None, query: Query | str = "", **headers: str) -> Answer:
        return await self.request("POST", path, body, query=query, **headers)

    async def put(self, path: str, body: Any = None, query: Query | str = "", **headers: str) -> Answer:
        return await self.request("PUT", path, body, query=query, **headers)

    async def patch(
        self, path: str, body: Any, media: str = MERGE_PATCH, query: Query | str = "", **headers: str
    ) -> Answer:
        return await self.request("PATCH", path, body, query=query, content_type=media, **headers)

    async def delete(self, path: str, body: Any = None, query: Query | str = "", **headers: str) -> Answer:
        return await self.request("DELETE", path, body, query=query, **headers)

    async def watch(self, path: str, query: Query | None = None, **headers: str) -> Watch:
        request = self.prepared("GET", path, None, {"watch": "1", **(query or {})}, headers)
        answer = await self.answer(request)
        assert isinstance(answer, Stream), answer
        return Watch(answer)

    async def create(self, path: str, obj: Obj) -> Obj:
        """An object that certainly can be created."""
        answer = await self.post(path, obj)
        assert answer.status == 201, answer.body
        return answer.json  # type: ignore[no-any-return]

    async def config_map(self, name: str, labels: Mapping[str, str] | None = None, **data: str) -> Obj:
        metadata: Obj = {"name": name}
        if labels is not None:
            metadata["labels"] = dict(labels)
        return await self.create(CONFIG_MAPS, {"metadata": metadata, "data": data} if data else {"metadata": metadata})


def deployment(name: str, **spec: Any) -> Obj:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "nginx"}]}}
    return {"metadata": {"name": name}, "spec": {"selector": {"matchLabels": labels}, "template": template, **spec}}


def pod(name: str, **spec: Any) -> Obj:
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "main", "image": "nginx"}], **spec}}
