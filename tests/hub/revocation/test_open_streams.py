"""An open watch ends within ten seconds after its permission is withdrawn, and only then."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from apis_harness import widget_schema
from client_certificates import issue_client_certificate
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from examples import examples
from hub_harness import MERGE_PATCH, PODS, LocalHub, Watch, authority, pod
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_store import MemoryStore
from platform_harness import ALICE, APIS, BOB, MAPS, OPERATOR, RBAC, PlatformHub, binding
from simulated_time import SimulatedLoop, now

from farflung.http.certificates import CertificateHolder, Certificates, authority_id, new_authority, new_key
from farflung.http.messages import Request, Response, Stream
from farflung.hub.auth.authenticator import Authenticator
from farflung.hub.auth.credential_uses import CredentialUses
from farflung.hub.auth.open_streams import TURN, OpenStreams, Permission
from farflung.hub.auth.signing_keys import SigningKeys, StoredKey
from farflung.hub.auth.static_tokens import StaticTokens, TokenRecord, token_hash, write_tokens
from farflung.machinery.errors import Obj, unauthorized

GRACE = 10.0  #: seconds
READ_MAPS: Obj = {"verbs": ["get", "list", "watch"], "apiGroups": [""], "resources": ["configmaps"]}
ENTER: Obj = {"verbs": ["access"], "nonResourceURLs": ["/"]}
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
SECRETS = "/api/v1/namespaces/default/secrets"


class TimedHub(PlatformHub):
    """A hub whose clock is that of the loop."""

    @property
    def now(self) -> datetime:  # type: ignore[override]
        return now() + self._jump

    @now.setter
    def now(self, time: datetime) -> None:
        self._jump = timedelta(0)

    async def watch_as(self, token: str, cluster: str, path: str = MAPS, **headers: str) -> Watch:
        answer = await self.asked(token, cluster, path, **headers)
        assert isinstance(answer, Stream), answer
        return Watch(answer)

    async def asked(self, token: str, cluster: str, path: str = MAPS, **headers: str) -> Response | Stream:
        sent = {"authorization": f"Bearer {token}", **headers}
        return await self.answer(self.prepared("GET", f"/clusters/{cluster}{path}", None, {"watch": "1"}, sent))

    async def refuses(self, token: str, cluster: str, path: str = MAPS, **headers: str) -> bool:
        answer = await self.asked(token, cluster, path, **headers)
        if isinstance(answer, Stream):
            answer.stop()
        return answer.status in (401, 403)

    async def remove(self, path: str) -> None:
        answer = await self.of(OPERATOR, "DELETE", path)
        assert answer.status == 200, answer.body


@pytest.fixture
async def hub() -> TimedHub:
    hub = TimedHub()
    await hub.platform.bootstrap.start(bare=True)
    async with hub.running_controllers():
        pass  # the default roles
    return hub


async def shop_of(hub: TimedHub) -> str:
    """A workspace in which alice may read config maps."""
    shop = await hub.workspace("shop")
    await hub.grant(shop, "reader", ALICE, READ_MAPS, ENTER)
    return shop


def certificate_of(issuer: Certificates) -> bytes:
    """Alice's."""
    pem, _ = issue_client_certificate(issuer, "alice", ["system:authenticated"], now())
    return x509.load_pem_x509_certificate(pem).public_bytes(Encoding.DER)


async def ends(watch: Watch) -> bool:
    """Whether the watch ends within the grace period, without an error."""
    await asyncio.sleep(GRACE)
    assert not watch.aborted
    return watch.closed


# --- rights ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("withdrawn", ["clusterrolebindings/reader", "clusterroles/reader"])
async def test_a_watch_ends_after_its_role_or_binding_is_deleted(hub: TimedHub, withdrawn: str) -> None:
    shop = await shop_of(hub)
    watch = await hub.watch_as(ALICE, shop)
    await hub.remove(f"/clusters/{shop}{RBAC}/{withdrawn}")
    assert await ends(watch)
    assert await hub.refuses(ALICE, shop)
    await hub.made(OPERATOR, f"/clusters/{shop}{MAPS}", {"metadata": {"name": "later"}})
    assert "later" not in [name for _, name in watch.changes]


async def test_a_watch_continues_while_another_binding_allows_it(hub: TimedHub) -> None:
    shop = await shop_of(hub)
    await hub.grant(shop, "second", ALICE, READ_MAPS, ENTER)
    watch = await hub.watch_as(ALICE, shop)
    await hub.remove(f"/clusters/{shop}{RBAC}/clusterrolebindings/reader")
    assert not await ends(watch)


async def test_a_watch_in_a_namespace_ends_with_the_role_there(hub: TimedHub) -> None:
    shop = await hub.workspace("shop")
    await hub.grant(shop, "enter", ALICE, ENTER)
    at = f"/clusters/{shop}{RBAC}/namespaces/default"
    await hub.made(OPERATOR, f"{at}/roles", {"metadata": {"name": "reader"}, "rules": [READ_MAPS]})
    bound = binding("reader", ALICE, "reader")
    await hub.made(OPERATOR, f"{at}/rolebindings", bound | {"roleRef": {**bound["roleRef"], "kind": "Role"}})
    watch = await hub.watch_as(ALICE, shop)
    await hub.remove(f"{at}/rolebindings/reader")
    assert await ends(watch)


async def test_a_watch_ends_when_its_user_may_no_longer_enter_the_workspace(hub: TimedHub) -> None:
    shop = await hub.workspace("shop")
    await hub.grant(shop, "reader", ALICE, READ_MAPS)
    await hub.grant(shop, "enter", ALICE, ENTER)
    watch = await hub.watch_as(ALICE, shop)
    await hub.remove(f"/clusters/{shop}{RBAC}/clusterrolebindings/enter")
    assert await ends(watch)


async def test_a_watch_of_an_impersonated_user_ends_with_the_permission_to_impersonate(hub: TimedHub) -> None:
    shop = await shop_of(hub)
    impersonate: Obj = {"verbs": ["impersonate"], "apiGroups": [""], "resources": ["users"], "resourceNames": ["alice"]}
    await hub.grant(shop, "boss", BOB, impersonate, ENTER)
    watch = await hub.watch_as(BOB, shop, **{"impersonate-user": "alice"})
    await hub.remove(f"/clusters/{shop}{RBAC}/clusterrolebindings/boss")
    assert await ends(watch)


async def test_a_watch_of_a_bound_kind_ends_when_the_policy_of_the_export_forbids_it(hub: TimedHub) -> None:
    maker = await hub.workspace("maker")
    shop = await hub.workspace("shop", ALICE)
    await hub.export(maker, "widgets", widget_schema(), maximalPermissionPolicy={"local": {}})
    widgets = "/apis/ex.test/v1/widgets"
    every: Obj = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
    await hub.grant(maker, "consumers", f"apis.kcp.io:binding:{ALICE}", every)
    await hub.grant(maker, "binders", ALICE, {**every, "verbs": ["bind"]})
    await hub.bind(shop, "widgets", "root:maker", "widgets")
    watch = await hub.watch_as(ALICE, shop, widgets)
    await hub.remove(f"/clusters/{maker}{RBAC}/clusterrolebindings/consumers")
    assert await ends(watch)


async def test_a_watch_of_a_bound_kind_ends_when_its_export_gets_a_policy(hub: TimedHub) -> None:
    maker = await hub.workspace("maker")
    shop = await hub.workspace("shop", ALICE)
    await hub.export(maker, "widgets", widget_schema())
    await hub.bind(shop, "widgets", "root:maker", "widgets")
    watch = await hub.watch_as(ALICE, shop, "/apis/ex.test/v1/widgets")
    policy: Obj = {"apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIExport"}
    policy["spec"] = {"maximalPermissionPolicy": {"local": {}}}
    at = f"/clusters/{maker}{APIS}/apiexports/widgets"
    answer = await hub.of(OPERATOR, "PATCH", at, policy, content_type=MERGE_PATCH)
    assert answer.status == 200, answer.body
    assert await ends(watch)


async def test_a_watch_of_a_view_ends_when_its_user_may_no_longer_use_the_export(hub: TimedHub) -> None:
    maker = await hub.workspace("maker")
    await hub.export(maker, "widgets", widget_schema())
    content: Obj = {"verbs": ["*"], "apiGroups": ["apis.kcp.io"], "resources": ["apiexports/content"]}
    await hub.grant(maker, "provider", ALICE, content, ENTER)
    view = f"/services/apiexport/{maker}/widgets/clusters/*/apis/ex.test/v1/widgets"
    answer = await hub.answer(hub.prepared("GET", view, None, {"watch": "1"}, {"authorization": f"Bearer {ALICE}"}))
    assert isinstance(answer, Stream), answer
    watch = Watch(answer)
    await hub.remove(f"/clusters/{maker}{RBAC}/clusterrolebindings/provider")
    assert await ends(watch)


async def test_a_permission_that_is_withdrawn_before_the_stream_starts_sends_nothing(hub: TimedHub) -> None:
    shop = await shop_of(hub)
    answer = await hub.asked(ALICE, shop)
    await hub.remove(f"/clusters/{shop}{RBAC}/clusterrolebindings/reader")
    assert isinstance(answer, Stream)
    watch = Watch(answer)
    assert watch.closed
    assert not watch.lines


async def token_of_robot(hub: TimedHub, cluster: str, **spec: Any) -> str:
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    answer = await hub.made(OPERATOR, f"/clusters/{cluster}{ACCOUNTS}/robot/token", request)
    return str(answer["status"]["token"])


# --- credentials ----------------------------------------------------------------------------------


@pytest.mark.parametrize("bound_to", ["ServiceAccount", "Secret"])
async def test_a_watch_ends_when_the_object_of_its_token_is_deleted(hub: TimedHub, bound_to: str) -> None:
    shop = await hub.workspace("shop")
    await hub.robot(shop)
    at = f"/clusters/{shop}"
    await hub.made(OPERATOR, f"{at}{SECRETS}", {"metadata": {"name": "bound"}})
    spec: Obj = (
        {}
        if bound_to == "ServiceAccount"
        else {"boundObjectRef": {"kind": bound_to, "apiVersion": "v1", "name": "bound"}}
    )
    token = await token_of_robot(hub, shop, **spec)
    watch = await hub.watch_as(token, shop)
    await hub.remove(f"{at}{SECRETS}/bound" if spec else f"{at}{ACCOUNTS}/robot")
    assert await ends(watch)
    assert await hub.refuses(token, shop)


async def test_a_watch_ends_when_the_terminating_account_of_its_token_is_no_longer_valid(hub: TimedHub) -> None:
    """A token stays valid for a minute after its account was marked as deleted."""
    shop = await hub.workspace("shop")
    token = await hub.robot(shop)
    at = f"/clusters/{shop}{ACCOUNTS}/robot"
    finalizers = {"metadata": {"finalizers": ["example.com/wait"]}}
    await hub.of(OPERATOR, "PATCH", at, finalizers, content_type=MERGE_PATCH)
    watch = await hub.watch_as(token, shop)
    await hub.of(OPERATOR, "DELETE", at)
    await asyncio.sleep(45)
    assert not watch.closed
    await asyncio.sleep(15)
    assert await ends(watch)
    assert await hub.refuses(token, shop)


async def test_a_watch_ends_when_its_token_expires(hub: TimedHub) -> None:
    """Clocks may differ by a minute."""
    shop = await hub.workspace("shop")
    await hub.robot(shop)
    token = await token_of_robot(hub, shop, expirationSeconds=600)
    watch = await hub.watch_as(token, shop)
    await asyncio.sleep(655)
    assert not watch.closed
    assert await ends(watch)
    assert await hub.refuses(token, shop)


async def test_a_watch_of_a_hub_without_workspaces_ends_with_the_pod_of_its_token() -> None:
    hub = await (await LocalHub.in_memory().furnish()).furnish_roles()
    subject = {"kind": "ServiceAccount", "name": "default", "namespace": "default"}
    await hub.create(f"{RBAC}/clusterrolebindings", {**binding("pods", "", "cluster-admin"), "subjects": [subject]})
    await hub.create(PODS, pod("bound"))
    reference = {"kind": "Pod", "apiVersion": "v1", "name": "bound"}
    issued = await hub.create(f"{ACCOUNTS}/default/token", {"spec": {"boundObjectRef": reference}})
    watch = await hub.watch(MAPS, authorization=f"Bearer {issued['status']['token']}")
    assert (await hub.delete(f"{PODS}/bound", query={"gracePeriodSeconds": "0"})).status == 200
    assert await ends(watch)


async def test_a_watch_ends_when_its_client_certificate_expires(hub: TimedHub) -> None:
    long_ago = now() - timedelta(days=365) + timedelta(hours=1)
    pem, _ = issue_client_certificate(authority(), "alice", ["system:authenticated"], long_ago)
    der = x509.load_pem_x509_certificate(pem).public_bytes(Encoding.DER)
    shop = await shop_of(hub)
    path = f"/clusters/{shop}{MAPS}"
    answer = await hub.answer(Request("GET", path, "watch=1&timeoutSeconds=7200", certificate=der))
    assert isinstance(answer, Stream), answer
    watch = Watch(answer)
    await asyncio.sleep(3590)
    assert not watch.closed
    await asyncio.sleep(15)
    assert watch.closed


async def test_a_watch_ends_when_the_key_of_its_token_is_revoked(hub: TimedHub) -> None:
    """A stolen key can sign any token."""
    shop = await hub.workspace("shop")
    stolen, new = (StoredKey(ec.generate_private_key(ec.SECP256R1())) for _ in range(2))
    hub.accounts.replace_keys(SigningKeys.of([stolen]))
    token = await hub.robot(shop)
    watch = await hub.watch_as(token, shop)
    hub.accounts.replace_keys(SigningKeys.of([new, stolen]))
    assert not await ends(watch)
    assert not await hub.refuses(token, shop)
    later = await token_of_robot(hub, shop)
    watch_later = await hub.watch_as(later, shop)
    hub.accounts.replace_keys(SigningKeys.of([new]))
    assert await hub.refuses(token, shop)
    assert await ends(watch)
    assert not watch_later.closed
    assert not await hub.refuses(later, shop)


async def test_a_watch_ends_when_the_authority_of_its_certificate_is_revoked(hub: TimedHub) -> None:
    shop, key = await shop_of(hub), new_key()
    old = authority()
    new = replace(old, ca=new_authority(key, now(), "successor"), ca_key=key)
    requests = [
        Request("GET", f"/clusters/{shop}{MAPS}", "watch=1", certificate=certificate_of(issuer))
        for issuer in (old, new)
    ]
    hub.certificates.replace(replace(old, others=(new.ca,)))
    watches = [Watch(answer) for answer in [await hub.answer(one) for one in requests] if isinstance(answer, Stream)]
    hub.certificates.replace(replace(new, others=(old.ca,)))
    await asyncio.sleep(GRACE)
    assert [watch.closed for watch in watches] == [False, False]
    hub.certificates.replace(new)
    assert [(await hub.answer(one)).status for one in requests] == [401, 200]
    await asyncio.sleep(GRACE)
    assert [watch.closed for watch in watches] == [True, False]


async def test_the_uses_of_old_keys_and_authorities_are_known(hub: TimedHub) -> None:
    shop, key = await shop_of(hub), new_key()
    first, second = (StoredKey(ec.generate_private_key(ec.SECP256R1())) for _ in range(2))
    hub.accounts.replace_keys(SigningKeys.of([first]))
    token, old = await hub.robot(shop), authority()
    request = Request("GET", f"/clusters/{shop}{MAPS}", certificate=certificate_of(old))
    assert (await hub.answer(request)).status == 200
    assert not await hub.refuses(token, shop)
    assert hub.uses.issuers == {}
    hub.accounts.replace_keys(SigningKeys.of([second, first]))
    hub.certificates.replace(replace(old, ca=new_authority(key, now(), "successor"), ca_key=key, others=(old.ca,)))
    assert (await hub.answer(request)).status == 200
    assert not await hub.refuses(token, shop)
    assert not await hub.refuses(await token_of_robot(hub, shop), shop)
    robot = f"{shop}:system:serviceaccount:default:robot"
    assert {issuer: list(use.users) for issuer, use in hub.uses.issuers.items()} == {
        first.verifying.short_id: [robot],
        authority_id(old.ca): ["alice"],
    }


async def test_only_the_users_whose_tokens_changed_in_the_file_are_checked(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    expires = now() + timedelta(seconds=100)
    records = {
        token_hash("ann's"): TokenRecord("ann"),
        token_hash("ben's"): TokenRecord("ben"),
        token_hash("cat's"): TokenRecord("cat", expires=expires),
    }
    write_tokens(path, records)
    hub = TimedHub()
    door = Authenticator(StaticTokens({}, path), hub.accounts, CertificateHolder(authority()), CredentialUses(), now)
    streams = OpenStreams(hub.store, now)
    door.subscribe(streams.recheck)

    def watch_of(name: str) -> Watch:
        request = Request("GET", "/", headers={"authorization": f"Bearer {name}'s"})

        def check() -> Permission:
            door.user_of(request)
            return door.validity(request)

        return Watch(streams.guard(Stream(lambda sink: None, lambda: None), check))

    ann, ben, cat = map(watch_of, ("ann", "ben", "cat"))
    checked = streams.checks
    write_tokens(path, {hashed: record for hashed, record in records.items() if record.name != "ann"})
    door.refresh()
    assert await ends(ann)
    assert streams.checks == checked + 1
    assert not ben.closed
    await asyncio.sleep(100)
    assert cat.closed
    assert not ben.closed


# --- cost -----------------------------------------------------------------------------------------


class Permissions:
    """Streams that depend on a name, and whose permission the test withdraws."""

    def __init__(self, count: int) -> None:
        self.streams = OpenStreams(MemoryStore(), now)
        self.allowed = set(range(count))
        self.checks_by_turn: list[int] = []
        self.watches = [
            Watch(self.streams.guard(Stream(lambda sink: None, lambda: None), lambda n=n: self.check(n)))
            for n in range(count)
        ]

    def check(self, number: int) -> Permission:
        if number not in self.allowed:
            raise unauthorized()
        return Permission(("roles", "/group/things/one/"))


async def test_checks_of_many_streams_leave_turns_to_other_requests() -> None:
    many = 10 * TURN
    permissions = Permissions(many)
    began = permissions.streams.checks
    permissions.allowed.clear()
    for _ in range(100):  # they are collected
        permissions.streams.recheck(["roles"])
    by_turn = []
    while not all(watch.closed for watch in permissions.watches):
        before = permissions.streams.checks
        await asyncio.sleep(0)
        by_turn.append(permissions.streams.checks - before)
    assert max(by_turn) <= TURN
    assert permissions.streams.checks - began == many


async def test_streams_are_checked_only_after_a_change_of_what_they_depend_on(hub: TimedHub) -> None:
    shop = await shop_of(hub)
    other = await hub.workspace("other")
    watch = await hub.watch_as(ALICE, shop)
    streams = hub.assembly.hub.streams
    checked = streams.checks
    await hub.made(OPERATOR, f"/clusters/{shop}{MAPS}", {"metadata": {"name": "a"}})
    await hub.robot(shop)  # a new binding withdraws nothing
    await hub.grant(other, "reader", ALICE, READ_MAPS)
    await hub.remove(f"/clusters/{other}{RBAC}/clusterrolebindings/reader")
    await asyncio.sleep(GRACE)
    assert streams.checks == checked
    watch.leave()
    await hub.remove(f"/clusters/{shop}{RBAC}/clusterrolebindings/reader")
    await asyncio.sleep(GRACE)
    assert streams.checks == checked


async def test_a_stream_that_ended_leaves_nothing_behind() -> None:
    permissions = Permissions(3)
    for watch in permissions.watches:
        watch.leave()
    assert not permissions.streams.dependencies


# --- histories ------------------------------------------------------------------------------------

USERS = (ALICE, BOB, "robot", "bob as alice")
ROLES = ("reader-alice", "reader-bob", "enter-alice", "enter-bob", "impersonate-bob", "robot")
STEPS = st.one_of(
    st.tuples(st.just("watch"), st.sampled_from(USERS)),
    st.tuples(st.just("withdraw"), st.sampled_from(ROLES)),
    st.tuples(st.just("grant"), st.sampled_from(ROLES)),
    st.tuples(st.just("narrow"), st.sampled_from(ROLES)),
    st.tuples(st.just("robot"), st.sampled_from(["delete", "create"])),
    st.tuples(st.just("wait"), st.sampled_from(["60", "600"])),
)


class History:
    def __init__(self, hub: TimedHub, shop: str) -> None:
        self.hub, self.at, self.shop = hub, f"/clusters/{shop}", shop
        self.token = ""
        self.watches: list[tuple[str, Watch]] = []

    async def run(self, steps: list[tuple[str, str]]) -> None:
        for role in ROLES:
            await self.step("grant", role)
        await self.step("robot", "create")
        for user in USERS:
            await self.step("watch", user)
        for kind, what in steps:
            await self.step(kind, what)
            await asyncio.sleep(GRACE)
            for user, watch in self.watches:
                assert watch.closed == await self.refuses(user), (user, kind, what)
            self.watches = [(user, watch) for user, watch in self.watches if not watch.closed]

    def credentials(self, user: str) -> tuple[str, dict[str, str]]:
        if user == "robot":
            return self.token, {}
        return (BOB, {"impersonate-user": "alice"}) if user == "bob as alice" else (user, {})

    async def refuses(self, user: str) -> bool:
        token, headers = self.credentials(user)
        return await self.hub.refuses(token, self.shop, **headers)

    async def step(self, kind: str, what: str) -> None:
        hub, roles = self.hub, f"{self.at}{RBAC}"
        match kind:
            case "watch" if not await self.refuses(what):
                token, headers = self.credentials(what)
                self.watches.append((what, await hub.watch_as(token, self.shop, **headers)))
            case "withdraw":
                await hub.of(OPERATOR, "DELETE", f"{roles}/clusterrolebindings/{what}")
            case "grant":
                await hub.of(OPERATOR, "DELETE", f"{roles}/clusterroles/{what}")
                await hub.of(OPERATOR, "DELETE", f"{roles}/clusterrolebindings/{what}")
                await hub.of(OPERATOR, "POST", f"{roles}/clusterroles", role_named(what))
                await hub.of(OPERATOR, "POST", f"{roles}/clusterrolebindings", binding_named(what))
            case "narrow":
                await hub.of(OPERATOR, "PUT", f"{roles}/clusterroles/{what}", {**role_named(what), "rules": []})
            case "robot" if what == "delete":
                await hub.of(OPERATOR, "DELETE", f"{self.at}{ACCOUNTS}/robot")
            case "robot":
                await hub.of(OPERATOR, "POST", f"{self.at}{ACCOUNTS}", {"metadata": {"name": "robot"}})
                request = {
                    "apiVersion": "authentication.k8s.io/v1",
                    "kind": "TokenRequest",
                    "spec": {"expirationSeconds": 600},
                }
                self.token = (await hub.made(OPERATOR, f"{self.at}{ACCOUNTS}/robot/token", request))["status"]["token"]
                self.watches = [one for one in self.watches if one[0] != "robot"]  # of another token
            case "wait":
                await asyncio.sleep(float(what))


def role_named(name: str) -> Obj:
    impersonate: Obj = {"verbs": ["impersonate"], "apiGroups": [""], "resources": ["users"], "resourceNames": ["alice"]}
    rule = {"enter": ENTER, "impersonate": impersonate}.get(name.partition("-")[0], READ_MAPS)
    return {"metadata": {"name": name}, "rules": [rule]}


def binding_named(name: str) -> Obj:
    subject: Obj = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name.partition("-")[2]}
    if name == "robot":
        subject = {"kind": "ServiceAccount", "name": "robot", "namespace": "default"}
    return {**binding(name, "", name), "subjects": [subject]}


@settings(max_examples=examples(20))
@given(steps=st.lists(STEPS, max_size=12))
def test_an_open_watch_exists_exactly_while_its_user_could_open_it(steps: list[tuple[str, str]]) -> None:
    async def run() -> None:
        hub = TimedHub()
        await hub.platform.bootstrap.start(bare=True)
        await History(hub, await hub.workspace("shop")).run(steps)

    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        runner.run(run())
