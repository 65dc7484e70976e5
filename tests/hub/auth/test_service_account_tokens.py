"""A token of a ServiceAccount is good if its signature, its times, its cluster, its account and the object it is bound
to say so, and not otherwise."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest
from examples import examples
from hub_harness import PODS, LocalHub, pod
from hypothesis import given, settings
from hypothesis import strategies as st

from farflung.http.messages import Request
from farflung.hub.auth.service_account_tokens import (
    AUDIENCES,
    BoundObjects,
    Claims,
    KubernetesClaim,
    LegacyClaims,
    ObjectClaim,
    ServiceAccount,
    encode,
)
from farflung.hub.auth.signing_keys import SigningKeys
from farflung.hub.request.user import User
from farflung.machinery.errors import ApiError, Obj

ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
SECRETS = "/api/v1/namespaces/default/secrets"
NODES = "/api/v1/nodes"


def user_of(hub: LocalHub, token: str) -> User | None:
    """Asked twice: the second time it is remembered."""
    answers = []
    for _ in range(2):
        try:
            request = Request("GET", "/", headers={"authorization": f"Bearer {token}"})
            answers.append(hub.authenticator.user_of(request))
        except ApiError as error:
            assert error.code == 401
            answers.append(None)
    assert answers[0] == answers[1]
    return answers[0]


def why(hub: LocalHub, token: str, cluster: str = "root") -> str:
    """What a review says is wrong with it."""
    return hub.authenticator.review(token, (), cluster).error.removeprefix("[invalid bearer token, ").removesuffix("]")


async def token_for(hub: LocalHub, name: str = "default", **spec: object) -> str:
    answer = await hub.post(f"{ACCOUNTS}/{name}/token", {"spec": spec})
    assert answer.status == 201, answer.body
    token: str = answer.json["status"]["token"]
    return token


def bound_to(obj: Obj) -> Obj:
    return {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "name": obj["metadata"]["name"]}


# --- who it is ------------------------------------------------------------------------------------


async def test_a_token_says_whose_it_is(hub: LocalHub) -> None:
    uid = (await hub.get(f"{ACCOUNTS}/default")).json["metadata"]["uid"]
    user = user_of(hub, await token_for(hub))
    assert user is not None
    assert (user.name, user.uid, user.cluster) == ("system:serviceaccount:default:default", uid, "root")
    assert user.groups == ("system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated")
    ((name, (credential,)),) = user.extra
    assert name == "authentication.kubernetes.io/credential-id"
    assert credential.startswith("JTI=")


async def test_a_token_bound_to_a_pod_says_which_and_where_it_is(hub: LocalHub) -> None:
    node = await hub.create(NODES, {"metadata": {"name": "n1"}})
    placed = await hub.create(PODS, pod("p", nodeName="n1"))
    lost = await hub.create(PODS, pod("q", nodeName="n2"))
    told = []
    for one in (placed, lost):
        user = user_of(hub, await token_for(hub, boundObjectRef=bound_to(one)))
        assert user is not None
        told.append({name.rpartition("/")[2]: value for name, (value,) in user.extra})
        del told[-1]["credential-id"]
    assert told == [
        {
            "node-name": "n1",
            "node-uid": node["metadata"]["uid"],
            "pod-name": "p",
            "pod-uid": placed["metadata"]["uid"],
        },
        {"node-name": "n2", "pod-name": "q", "pod-uid": lost["metadata"]["uid"]},
    ]
    assert [name for name, _ in user.extra] == sorted(name for name, _ in user.extra)


async def test_tokens_of_the_same_account_have_different_ids(hub: LocalHub) -> None:
    first, second = user_of(hub, await token_for(hub)), user_of(hub, await token_for(hub))
    assert first is not None
    assert second is not None
    assert first.extra != second.extra


# --- how it ends ----------------------------------------------------------------------------------


async def test_a_token_ends_with_its_time_and_a_minute_for_clocks_that_differ(hub: LocalHub) -> None:
    token = await token_for(hub, expirationSeconds=600)
    hub.later(660)
    assert user_of(hub, token) is not None
    hub.later(1)
    assert user_of(hub, token) is None
    assert why(hub, token) == "service account token has expired"
    hub.later(-661 - 60)
    assert user_of(hub, token) is not None
    hub.later(-1)
    assert user_of(hub, token) is None
    assert why(hub, token) == "service account token is not valid yet"


async def test_a_token_ends_with_its_account_even_if_another_one_takes_the_name(hub: LocalHub) -> None:
    await hub.create(ACCOUNTS, {"metadata": {"name": "robot"}})
    token = await token_for(hub, "robot")
    assert user_of(hub, token) is not None
    await hub.delete(f"{ACCOUNTS}/robot")
    assert user_of(hub, token) is None
    assert why(hub, token) == 'serviceaccounts "robot" not found'
    await hub.create(ACCOUNTS, {"metadata": {"name": "robot"}})
    assert user_of(hub, token) is None
    assert why(hub, token).startswith("service account UID (")


async def test_an_account_that_was_deleted_and_is_held_counts_for_a_minute(hub: LocalHub) -> None:
    await hub.create(ACCOUNTS, {"metadata": {"name": "robot", "finalizers": ["example.com/hold"]}})
    token = await token_for(hub, "robot")
    await hub.delete(f"{ACCOUNTS}/robot")
    hub.later(60)
    assert user_of(hub, token) is not None
    hub.later(1)
    assert user_of(hub, token) is None
    assert why(hub, token) == "service account default/robot has been deleted"


@pytest.mark.parametrize("kind", ["Pod", "Secret", "Node"])
async def test_a_token_ends_with_the_object_it_is_bound_to(hub: LocalHub, kind: str) -> None:
    place = {"Pod": PODS, "Secret": SECRETS, "Node": NODES}[kind]
    sent = pod("x") if kind == "Pod" else {"metadata": {"name": "x"}}
    token = await token_for(hub, boundObjectRef=bound_to(await hub.create(place, sent)))
    assert user_of(hub, token) is not None
    await hub.delete(f"{place}/x", {"gracePeriodSeconds": 0})
    assert user_of(hub, token) is None
    assert why(hub, token) == "service account token has been invalidated"
    await hub.create(place, sent)
    assert user_of(hub, token) is None
    assert f"{kind.lower()} UID" in why(hub, token)


async def test_a_pod_that_ends_in_a_while_keeps_its_token_for_so_long(hub: LocalHub) -> None:
    await hub.create(NODES, {"metadata": {"name": "n1"}})
    created = await hub.create(PODS, pod("x", nodeName="n1"))
    token = await token_for(hub, boundObjectRef=bound_to(created))
    await hub.delete(f"{PODS}/x", {"gracePeriodSeconds": 30})
    hub.later(90)
    assert user_of(hub, token) is not None
    hub.later(1)
    assert user_of(hub, token) is None


async def test_a_change_of_the_account_leaves_its_tokens_good(hub: LocalHub) -> None:
    token = await token_for(hub)
    assert user_of(hub, token) is not None
    await hub.patch(f"{ACCOUNTS}/default", {"metadata": {"labels": {"a": "b"}}})
    assert user_of(hub, token) is not None


# --- what else can be wrong -----------------------------------------------------------------------


async def test_a_token_for_another_audience_does_not_authenticate(hub: LocalHub) -> None:
    token = await token_for(hub, audiences=["vault"])
    assert user_of(hub, token) is None
    assert why(hub, token) == (
        'token audiences ["vault"] is invalid for the target audiences ["https://kubernetes.default.svc"]'
    )
    assert user_of(hub, await token_for(hub, audiences=["vault", *AUDIENCES])) is not None


async def test_a_token_of_another_cluster_does_not_authenticate(hub: LocalHub) -> None:
    uid = (await hub.get(f"{ACCOUNTS}/default")).json["metadata"]["uid"]
    elsewhere = hub.accounts.issue(ServiceAccount("other", "default", "default", uid), AUDIENCES, 3600, BoundObjects())
    assert user_of(hub, elsewhere) is None, "the account is not there, although one here has its name and uid"
    here = await token_for(hub)
    assert why(hub, here, "other") == "invalid bearer token"
    assert user_of(hub, here).cluster == "root"  # type: ignore[union-attr]  # it is good


async def test_a_token_of_another_hub_is_nothing(hub: LocalHub) -> None:
    uid = (await hub.get(f"{ACCOUNTS}/default")).json["metadata"]["uid"]
    account = ServiceAccount("root", "default", "default", uid)
    now = int(hub.now.timestamp())
    reference = ObjectClaim("default", uid)
    private = KubernetesClaim(clusterName="root", namespace="default", serviceaccount=reference)
    claims = Claims(AUDIENCES[0], account.username, AUDIENCES, now + 60, now, now, "jti", private)
    assert user_of(hub, hub.accounts.keys.sign(encode(claims))) is not None
    assert user_of(hub, SigningKeys.new().sign(encode(claims))) is None


@pytest.mark.parametrize("without", ["iss", "exp", "kubernetes.io", "clusterName", "namespace", "name", "uid"])
async def test_a_signed_token_that_lacks_something_is_nothing(hub: LocalHub, without: str) -> None:
    uid = (await hub.get(f"{ACCOUNTS}/default")).json["metadata"]["uid"]
    reference = {"name": "default", "uid": uid}
    private: Obj = {"clusterName": "root", "namespace": "default", "serviceaccount": reference}
    claims: Obj = {"iss": AUDIENCES[0], "aud": list(AUDIENCES), "exp": int(hub.now.timestamp()) + 60}
    claims["kubernetes.io"] = private
    for part in (claims, private, reference):
        part.pop(without, None)
    assert user_of(hub, hub.accounts.keys.sign(encode(claims))) is None


@pytest.mark.parametrize("claims", [b"[]", b"{", b"null", b"\xff", b'{"iss":1}', b"[" * 5000, b'{"iss":"x"}'])
async def test_signed_nonsense_is_nothing(hub: LocalHub, claims: bytes) -> None:
    assert user_of(hub, hub.accounts.keys.sign(claims)) is None


async def test_an_old_kind_of_token_must_be_the_one_in_its_secret(hub: LocalHub) -> None:
    uid = (await hub.get(f"{ACCOUNTS}/default")).json["metadata"]["uid"]
    account = ServiceAccount("root", "default", "default", uid)
    token, other = hub.accounts.issue_legacy(account, "s"), hub.accounts.issue_legacy(account, "s")
    annotations = {"kubernetes.io/service-account.name": "default"}
    secret = {"metadata": {"name": "s", "annotations": annotations}, "type": "kubernetes.io/service-account-token"}
    assert why(hub, token) == "service account token has been invalidated"
    await hub.create(SECRETS, secret | {"stringData": {"token": token}})
    assert user_of(hub, token) == User(account.username, account.groups, uid, (), "root")
    assert (user_of(hub, other) is None) == (other != token)
    await hub.patch(f"{SECRETS}/s", {"stringData": {"token": "x"}})
    assert why(hub, token) == "service account token does not match server's copy"
    await hub.patch(f"{SECRETS}/s", {"stringData": {"token": token}})
    assert user_of(hub, token) is not None
    await hub.delete(f"{SECRETS}/s")
    assert user_of(hub, token) is None
    liar = LegacyClaims(
        "kubernetes/serviceaccount", "system:serviceaccount:x:y", "root", "default", "s", "default", uid
    )
    assert user_of(hub, hub.accounts.keys.sign(encode(liar))) is None


# --- against a twin -------------------------------------------------------------------------------


@dataclass
class Thing:
    uid: str
    marked: float | None = None


@dataclass
class Issued:
    token: str
    begins: float
    ends: float
    audiences: tuple[str, ...]
    needs: list[tuple[str, str, str]]  #: kind, name, uid
    genuine: bool = True


@dataclass
class Twin:
    """What there is, told by looking at everything, every time."""

    things: dict[tuple[str, str], Thing] = field(default_factory=dict)
    tokens: list[Issued] = field(default_factory=list)

    def good(self, issued: Issued, now: float) -> bool:
        if not issued.genuine or not issued.begins - 60 <= now <= issued.ends + 60:
            return False
        if AUDIENCES[0] not in issued.audiences:
            return False
        for kind, name, uid in issued.needs:
            thing = self.things.get((kind, name))
            if thing is None or thing.uid != uid or (thing.marked is not None and thing.marked < now - 60):
                return False
        return True


PLACES = {"ServiceAccount": ACCOUNTS, "Pod": PODS, "Secret": SECRETS, "Node": NODES}
NAMES = st.sampled_from(["a", "b"])
KINDS = st.sampled_from(list(PLACES))
STEPS = st.one_of(
    st.tuples(st.just("create"), KINDS, NAMES, st.booleans()),
    st.tuples(st.just("delete"), KINDS, NAMES),
    st.tuples(st.just("label"), KINDS, NAMES),
    st.tuples(st.just("wait"), st.sampled_from([1, 30, 59, 60, 61, 600, 4000])),
    st.tuples(st.just("issue"), NAMES, st.none() | st.sampled_from(["Pod", "Secret", "Node"]), NAMES, st.booleans()),
    st.tuples(st.just("forge"), st.integers(0, 5), st.integers(1, 10_000), st.integers(0, 63)),
)
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


class History:
    def __init__(self, hub: LocalHub) -> None:
        self.hub = hub
        self.twin = Twin()

    async def create(self, kind: str, name: str, held: bool) -> None:
        sent = pod(name, serviceAccountName=name) if kind == "Pod" else {"metadata": {"name": name}}
        if held:
            sent["metadata"]["finalizers"] = ["example.com/hold"]
        answer = await self.hub.post(PLACES[kind], sent)
        if answer.status == 201:
            self.twin.things[kind, name] = Thing(answer.json["metadata"]["uid"])

    async def delete(self, kind: str, name: str) -> None:
        answer = await self.hub.delete(f"{PLACES[kind]}/{name}", {"gracePeriodSeconds": 0})
        if answer.status == 404:
            return
        thing = self.twin.things[kind, name]
        if (await self.hub.get(f"{PLACES[kind]}/{name}")).status == 404:
            del self.twin.things[kind, name]
        elif thing.marked is None:
            thing.marked = self.hub.now.timestamp()

    async def label(self, kind: str, name: str) -> None:
        await self.hub.patch(f"{PLACES[kind]}/{name}", {"metadata": {"labels": {"at": str(self.hub.store.revision)}}})

    async def wait(self, seconds: int) -> None:
        self.hub.later(seconds)

    async def issue(self, name: str, kind: str | None, other: str, abroad: bool) -> None:
        spec: Obj = {"audiences": ["vault"] if abroad else [], "expirationSeconds": 600}
        if kind is not None:
            spec["boundObjectRef"] = {"apiVersion": "v1", "kind": kind, "name": name if kind == "Pod" else other}
        answer = await self.hub.post(f"{ACCOUNTS}/{name}/token", {"spec": spec})
        if answer.status != 201:
            return
        needed = [("ServiceAccount", name)] + ([(kind, spec["boundObjectRef"]["name"])] if kind else [])
        needs = [(one, its, self.twin.things[one, its].uid) for one, its in needed]
        now = self.hub.now.timestamp()
        audiences = ("vault",) if abroad else AUDIENCES
        self.twin.tokens.append(Issued(answer.json["status"]["token"], now, now + 600, audiences, needs))

    async def forge(self, which: int, place: int, char: int) -> None:
        if which < len(self.twin.tokens):
            real = self.twin.tokens[which]
            place %= len(real.token)
            token = real.token[:place] + ALPHABET[char] + real.token[place + 1 :]
            if all(token != issued.token for issued in self.twin.tokens):
                self.twin.tokens.append(Issued(token, real.begins, real.ends, real.audiences, real.needs, False))

    def check(self) -> None:
        now = self.hub.now.timestamp()
        for issued in self.twin.tokens:
            assert (user_of(self.hub, issued.token) is not None) == self.twin.good(issued, now), issued


@settings(max_examples=examples(120))
@given(st.lists(STEPS, min_size=4, max_size=30))
def test_after_any_history_a_token_is_good_exactly_if_everything_it_depends_on_is_there(
    steps: list[tuple[str, object]],
) -> None:
    async def run() -> None:
        history = History(await LocalHub.in_memory().furnish())
        for name in ("a", "b"):
            await history.create("ServiceAccount", name, held=False)
        for what, *arguments in steps:
            await getattr(history, what)(*arguments)
            history.check()

    asyncio.run(run())
