"""A syncer's token: which one is used, and when there is a new one."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from local_transport import LocalTransport
from platform_harness import OPERATOR
from registered import LIFETIME, Registry, name_of, registry

from farflung.client.credentials import bearer
from farflung.client.errors import Forbidden, InvalidResponse, KubeconfigError, Unauthorized, Unreachable
from farflung.client.kubeconfig import ClientConfig
from farflung.client.rest import Client
from farflung.client.transport import OutgoingRequest, Reply
from farflung.lib.backoff import Backoff
from farflung.runtime.environment import Environment
from farflung.syncer.registration import Registered, revoke
from farflung.syncer.tokens import (
    CHECK_PERIOD,
    FILE,
    REFUSED,
    REST,
    ServiceAccountToken,
    TokenKeeper,
    choose_token,
    read_token,
    renew_tokens,
    secret_writer,
)

DAY = 24 * 3600.0


def jwt(issued: float = 0, lifetime: float = LIFETIME, name: str = "me", cluster: str = "c", **more: Any) -> str:
    private = {"namespace": "farflung-syncer", "serviceaccount": {"name": name}, "clusterName": cluster}
    claims = {"iat": issued, "exp": issued + lifetime, "kubernetes.io": private, **more}
    parts = (b'{"alg":"none"}', orjson.dumps(claims), b"signature")
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


def token(**how: Any) -> ServiceAccountToken:
    read = read_token(jwt(**how))
    assert read is not None
    return read


# --- what is in one -------------------------------------------------------------------------------


def test_a_token_says_whose_it_is_and_how_long() -> None:
    read = token(issued=100, lifetime=900)
    assert (read.issued, read.expires, read.lifetime) == (100, 1000, 900)
    assert (read.account.cluster, read.account.namespace, read.account.name) == ("c", "farflung-syncer", "me")
    assert jwt(issued=100, lifetime=900) not in repr(read)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "admin-token",
        "a.b.c",
        "...",
        jwt(name=""),
        jwt(lifetime=0),
        jwt(lifetime=-5),
        jwt(lifetime=1e300),
        jwt(issued=-1),
        jwt(exp="soon"),
        jwt(**{"kubernetes.io": None}),
        jwt(name="x" * 20000),
        jwt() + "\n",
        "é" + jwt(),
    ],
)
def test_what_is_no_token_of_an_account_is_left_alone(text: str) -> None:
    assert read_token(text) is None


@given(
    st.text(max_size=50)
    | st.tuples(st.text(), st.binary().map(lambda b: base64.urlsafe_b64encode(b).decode())).map(
        lambda two: f"{two[0]}.{two[1]}.x"
    )
)
def test_no_content_of_a_token_file_raises(text: str) -> None:
    read_token(text)


def test_it_is_renewed_after_a_third_of_its_time() -> None:
    one = token(issued=1000, lifetime=900)
    assert one.due_in(1000) == 300
    assert one.due_in(1299) == 1
    assert one.due_in(1300) == one.due_in(99999) == 0


def test_it_is_renewed_at_once_if_it_is_from_the_future() -> None:
    assert token(issued=10_000).due_in(0) == 0
    assert token(issued=10_000).due_in(9_990) > 0


def test_the_later_token_counts_unless_it_was_refused_or_is_of_another_cluster() -> None:
    old, new = token(issued=1), token(issued=2)
    assert choose_token(old, new) is choose_token(new, old) is new
    assert choose_token(old, new, refused=new.text) is old
    assert choose_token(None, new, refused=new.text) is new
    assert choose_token(None, None) is None
    assert choose_token(old, token(issued=5, cluster="other")) is old


# --- a keeper with a hub that can be away or refuse -----------------------------------------------


class Line:
    """To a hub, as somebody; it can be down, or answer with something else."""

    def __init__(self, one: Registry, keeper: TokenKeeper) -> None:
        self.inner = LocalTransport(one.fleet.hub.function, "")
        self.keeper = keeper
        self.used: list[str] = []

    @asynccontextmanager
    async def open(self, request: OutgoingRequest) -> AsyncIterator[Reply]:
        self.inner.token = (await self.keeper.headers())["Authorization"].removeprefix("Bearer ")
        self.used.append(self.inner.token)
        async with self.inner.open(request) as reply:
            if reply.status == 401:
                self.keeper.forget()
            yield reply


@dataclass
class Kept:
    one: Registry
    registered: Registered
    directory: Path
    given: str
    behind: timedelta = timedelta(0)  #: our clock
    problems: list[str] = field(default_factory=list)
    copies: list[str] = field(default_factory=list)

    def start(self) -> None:
        """As a process does that knows nothing but its directory and its kubeconfig."""
        keeper = TokenKeeper(self._headers, lambda: None, self.directory, self._clock, self.problems.append, self._copy)
        self.keeper, self.line = keeper, Line(self.one, keeper)
        self.client = Client(self.line, f"/clusters/{self.registered.cluster}")

    async def _headers(self) -> Mapping[str, str]:
        return bearer(self.given, "the test")

    def _clock(self) -> float:
        return (self.one.fleet.hub.now - self.behind).timestamp()

    async def _copy(self, text: str) -> None:
        self.copies.append(text)

    def pass_days(self, days: float) -> None:
        self.one.fleet.hub.now += timedelta(days=days)

    async def works(self) -> None:
        await self.client.raw("/apis/edge.kcp.io/v1alpha1/syncerconfigs/the-one")

    @property
    def used(self) -> str:
        return self.line.used[-1]

    @property
    def kept(self) -> str:
        return (self.directory / FILE).read_text()


@asynccontextmanager
async def kept(directory: Path) -> AsyncIterator[Kept]:
    async with registry("florin") as one:
        registered = await one.register("florin")
        found = Kept(one, registered, directory, registered.token)
        found.start()
        yield found


async def test_a_young_token_stays(tmp_path: Path) -> None:
    async with kept(tmp_path) as found:
        assert await found.keeper.renew_if_due(found.client) == CHECK_PERIOD
        await found.works()
        assert found.used == found.given
        assert list(tmp_path.iterdir()) == []


async def test_an_older_one_is_renewed_kept_and_used_by_the_next_process(tmp_path: Path) -> None:
    async with kept(tmp_path) as found:
        found.pass_days(11)
        await found.keeper.renew_if_due(found.client)
        await found.works()
        assert found.used == found.kept != found.given
        assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600
        assert token_of(found.kept).lifetime == LIFETIME
        found.start()
        await found.works()
        assert found.used == found.kept


def token_of(text: str) -> ServiceAccountToken:
    read = read_token(text)
    assert read is not None
    return read


async def test_it_lasts_for_as_long_as_it_is_renewed(tmp_path: Path) -> None:
    async with kept(tmp_path) as found:
        for _ in range(20):
            found.pass_days(15)
            found.start()
            await found.keeper.renew_if_due(found.client)
            await found.works()


async def test_a_hub_that_is_away_for_days_finds_it_as_it_was(tmp_path: Path) -> None:
    async with kept(tmp_path) as found:
        found.line.inner.up = False
        found.pass_days(29)
        with pytest.raises(Unreachable):
            await found.keeper.renew_if_due(found.client)
        found.line.inner.up = True
        await found.keeper.renew_if_due(found.client)
        assert found.kept != found.given
        found.pass_days(25)
        await found.works()


async def test_the_old_one_is_used_while_the_hub_refuses_a_new_one(tmp_path: Path) -> None:
    async with kept(tmp_path) as found:
        hub, name = found.one.fleet.hub, name_of("florin", found.registered)
        roles = f"/clusters/{found.registered.cluster}/apis/rbac.authorization.k8s.io/v1/clusterroles/{name}"
        role = (await hub.of(OPERATOR, "GET", roles)).json
        less = {**role, "rules": [rule for rule in role["rules"] if "resourceNames" not in rule]}
        less["metadata"] = {key: role["metadata"][key] for key in ("name", "resourceVersion")}
        assert (await hub.of(OPERATOR, "PUT", roles, less)).status == 200
        found.pass_days(20)
        with pytest.raises(Forbidden) as refused:
            await found.keeper.renew_if_due(found.client)
        assert found.given not in str(refused.value)
        await found.works()
        assert found.used == found.given
        await found.one.register("florin")
        await found.keeper.renew_if_due(found.client)
        assert found.kept != found.given


@pytest.mark.parametrize("days", [-10_000.0, -40.0, 40.0, 10_000.0])
async def test_a_clock_that_is_wrong_costs_one_renewal_and_not_one_each_time(tmp_path: Path, days: float) -> None:
    async with kept(tmp_path) as found:
        found.behind = timedelta(days=-days)
        pauses = [await found.keeper.renew_if_due(found.client) for _ in range(5)]
        requests = [request for request in found.line.inner.requests if request.target.endswith("/token")]
        assert (len(requests), pauses) == (1, [CHECK_PERIOD] * 5)
        found.behind = timedelta(0)
        await found.keeper.renew_if_due(found.client)
        assert await found.keeper.renew_if_due(found.client) == CHECK_PERIOD
        await found.works()


async def test_a_new_kubeconfig_counts_at_once(tmp_path: Path) -> None:
    async with kept(tmp_path) as found:
        found.pass_days(11)
        await found.keeper.renew_if_due(found.client)
        found.pass_days(1)
        found.given = (await found.one.register("florin")).token
        await found.works()
        assert found.used == found.given != found.kept


async def test_a_syncer_that_was_refused_reconnects_with_a_new_kubeconfig(tmp_path: Path) -> None:
    async with kept(tmp_path) as found:
        found.pass_days(11)
        await found.keeper.renew_if_due(found.client)
        await revoke(found.one.operator, found.one.wanted("florin"))
        for _ in range(3):
            assert not found.problems
            with pytest.raises(Unauthorized):
                await found.works()
        assert found.problems == [REFUSED]
        found.pass_days(1)
        found.given = (await found.one.register("florin")).token
        await found.works()
        assert found.used == found.given


async def test_a_syncer_that_was_away_for_too_long_says_what_to_do(tmp_path: Path) -> None:
    async with kept(tmp_path) as found:
        found.pass_days(31)
        for _ in range(3):
            with pytest.raises(Unauthorized):
                await found.works()

        async def sleep(seconds: float) -> None:
            raise asyncio.CancelledError

        env = Environment(lambda: 0.0, sleep, lambda: 1.0, Backoff(1, 1, lambda: 1.0))
        with pytest.raises(asyncio.CancelledError):
            await found.keeper.run(found.client, env)
        assert found.problems == [REFUSED] * 2


async def test_one_that_is_refused_makes_room_for_the_other_even_if_it_is_later(tmp_path: Path) -> None:
    async with kept(tmp_path) as found:
        later = jwt(
            issued=token_of(found.given).issued + DAY,
            name=name_of("florin", found.registered),
            cluster=found.registered.cluster,
        )
        (tmp_path / FILE).write_text(later)
        found.start()
        with pytest.raises(Unauthorized):
            await found.works()
        await found.works()
        assert found.used == found.given


@pytest.mark.parametrize(
    "content", [b"", b"nonsense", b"\xff\x00", b"x" * 100_000, jwt(issued=9, cluster="d").encode()]
)
async def test_what_was_kept_and_is_damaged_or_for_another_mailbox_does_not_count(
    tmp_path: Path, content: bytes
) -> None:
    async def given() -> Mapping[str, str]:
        return bearer(jwt(), "the test")

    (tmp_path / FILE).write_bytes(content)
    keeper = TokenKeeper(given, lambda: None, tmp_path, lambda: 0.0, lambda _: None)
    assert await keeper.headers() == await given()


async def test_a_token_that_cannot_be_written_is_used_and_reported(tmp_path: Path) -> None:
    async with kept(tmp_path / "missing") as found:
        found.pass_days(11)
        for _ in range(2):
            with pytest.raises(KubeconfigError, match="cannot store a new token"):
                await found.keeper.renew_if_due(found.client)
        await found.works()
        assert found.used != found.given
        assert found.copies == [found.used] * 2
        (tmp_path / "missing").mkdir()
        assert await found.keeper.renew_if_due(found.client) == CHECK_PERIOD
        assert found.kept == found.used


async def test_a_renewed_token_is_copied_until_the_kubeconfig_has_it(tmp_path: Path) -> None:
    async with kept(tmp_path) as found:
        await found.keeper.renew_if_due(found.client)
        assert found.copies == []
        found.pass_days(11)
        await found.keeper.renew_if_due(found.client)
        found.start()
        await found.keeper.renew_if_due(found.client)
        assert found.copies == [found.kept] * 2
        found.given = found.kept
        await found.keeper.renew_if_due(found.client)
        assert len(found.copies) == 2


async def test_the_token_is_written_to_the_secret_whose_other_keys_stay(tmp_path: Path) -> None:
    async with registry("florin") as one:
        cluster = await one.fleet.hub.workspace("edge")
        at = f"/clusters/{cluster}/api/v1/namespaces/default/secrets"
        await one.fleet.hub.made(
            OPERATOR, at, {"metadata": {"name": "s"}, "data": {"kubeconfig": "eA==", "token": "eQ=="}}
        )
        await secret_writer(one.fleet.client(f"/clusters/{cluster}"), "default", "s", FILE)("new")
        found = (await one.fleet.hub.of(OPERATOR, "GET", f"{at}/s")).json
        assert found["data"] == {"kubeconfig": "eA==", "token": base64.b64encode(b"new").decode()}


# --- at work --------------------------------------------------------------------------------------


async def test_at_work_it_tells_of_a_problem_and_of_its_end(tmp_path: Path) -> None:
    async with kept(tmp_path) as found:
        pauses: list[float] = []

        async def sleep(seconds: float) -> None:
            pauses.append(seconds)
            await asyncio.sleep(0)
            if len(pauses) == 3:
                found.line.inner.up = True
            if len(pauses) == 5:
                raise asyncio.CancelledError

        found.pass_days(11)
        found.line.inner.up = False
        env = Environment(lambda: 0.0, sleep, lambda: 1.0, Backoff(1, 1, lambda: 1.0))
        with pytest.raises(asyncio.CancelledError):
            await found.keeper.run(found.client, env)
        assert pauses == [REST, 2 * REST, 4 * REST, CHECK_PERIOD, CHECK_PERIOD]
        assert found.problems == ["connection refused"] * 3 + [""] * 2


async def test_messages_never_contain_a_token(tmp_path: Path) -> None:
    async with kept(tmp_path) as found:
        found.pass_days(11)

        class Echo:
            """Who is between us and the hub, and repeats what we say."""

            @asynccontextmanager
            async def open(self, request: OutgoingRequest) -> AsyncIterator[Reply]:
                raise InvalidResponse(f"bad gateway: {await found.keeper.headers()}")
                yield

        async def sleep(seconds: float) -> None:
            raise asyncio.CancelledError

        env = Environment(lambda: 0.0, sleep, lambda: 1.0, Backoff(1, 1, lambda: 1.0))
        with pytest.raises(asyncio.CancelledError):
            await found.keeper.run(Client(Echo()), env)
        assert found.problems == ["bad gateway: {'Authorization': 'Bearer …'}"]


# --- around an access -----------------------------------------------------------------------------


async def test_an_access_without_such_a_token_stays_as_it_is(tmp_path: Path) -> None:
    async def headers() -> Mapping[str, str]:
        return {"Authorization": "Bearer of-an-administrator"}

    forgotten: list[str] = []
    access = ClientConfig(
        "https://hub", "/clusters/x", "default", None, None, headers, None, lambda: forgotten.append("x")
    )
    problems: list[str] = []
    wrapped, keeper = renew_tokens(access, tmp_path / "new" / "state", lambda: 0.0, problems.append)
    assert await wrapped.credentials() == await headers()
    assert (wrapped.server, wrapped.prefix) == (access.server, access.prefix)
    wrapped.forget()
    assert forgotten == ["x"]
    assert await keeper.renew_if_due(Client(LocalTransport(lambda _: None, ""))) == CHECK_PERIOD  # type: ignore[arg-type, return-value]
    assert (tmp_path / "new" / "state").stat().st_mode & 0o777 == 0o700


async def test_a_deleted_kubeconfig_does_not_matter_while_a_token_is_kept(tmp_path: Path) -> None:
    async def nothing() -> Mapping[str, str]:
        raise KubeconfigError("cannot read tokenFile")

    keeper = TokenKeeper(nothing, lambda: None, tmp_path, lambda: 0.0, lambda _: None)
    with pytest.raises(KubeconfigError):
        await keeper.headers()
    (tmp_path / FILE).write_text(jwt())
    keeper = TokenKeeper(nothing, lambda: None, tmp_path, lambda: 0.0, lambda _: None)
    assert await keeper.headers() == {"Authorization": f"Bearer {jwt()}"}
