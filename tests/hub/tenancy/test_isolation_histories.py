"""Whatever others do: for who may see one workspace it is as if there were no others.

A history of requests runs on two hubs.  On the second one Bob keeps other things under other names, or he does nothing
at all.  All that Alice and her ServiceAccount get (answers, watches, refusals) must be the same to the byte, but for
numbers that count the writes of the whole hub, and for what is random.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from apis_harness import widget_schema
from examples import examples
from hub_harness import MERGE_PATCH, Watch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from platform_harness import ALICE, APIS, BOB, MAPS, OPERATOR, TENANCY, api_binding, platform_hub

from farflung.machinery.errors import Obj

ROBOT = "robot"
WIDGETS = "/apis/ex.test/v1/widgets"
PATIENCE = 60.0  #: seconds
NAMES = ["a", "b"]
CLAIM: Obj = {"resource": "configmaps", "all": True}
#: what tells of how much was written in the whole hub, and what is random; and what a binding of Alice's API, which she
#: may see, says of why it is not bound: as kcp does, it names the binding of Bob's that has the kind already
COUNTS = re.compile(
    rb'"(?:resourceVersion|continue|uid)":"[^"]*"|current: \d+|too old resource version: \d+ \(\d+\)|g-[0-9a-f]{5}'
    rb'|naming conflict with APIBinding \\"[^"\\]*\\"'
)


class Step(NamedTuple):
    who: str
    method: str
    path: str  #: `{mine}`, `{bobs}` and `{name}` stand for clusters and names
    body: Any = None
    query: str = ""


class Tenants:
    """Alice exports an API; Bob binds it or not, and has what his words say."""

    def __init__(self, words: Mapping[str, str]) -> None:
        self._words = words
        self.heard: list[object] = []
        self.watches: list[Watch] = []

    async def settle(self) -> Tenants:
        hub = self.hub = await platform_hub()
        await hub.workspace("org")
        self.mine = await hub.workspace("alices", ALICE, parent="root:org")
        self.bobs = await hub.workspace("bobs", BOB, parent="root:org")
        self.tokens = {ROBOT: await hub.robot(self.mine), "bobs-robot": await hub.robot(self.bobs)}
        await hub.export(self.mine, "mine", widget_schema(), by=ALICE, permissionClaims=[CLAIM])
        await hub.export(self.bobs, "his", widget_schema(), by=BOB)
        rules = (
            {"verbs": ["bind"], "apiGroups": ["apis.kcp.io"], "resources": ["apiexports"]},
            {"verbs": ["access"], "nonResourceURLs": ["/"]},
        )
        await hub.grant(self.mine, "binders", "bob", *rules)
        for path in ("/api/v1/configmaps", "/api/v1/namespaces", f"{APIS}/apibindings"):
            await self._watch(ALICE, ALICE, f"/clusters/{self.mine}{path}")
        for path in ("/api/v1/configmaps", WIDGETS, f"{APIS}/apibindings"):
            await self._watch(ALICE, ALICE, f"{self.view}*{path}")
        return self

    @property
    def view(self) -> str:
        return f"/services/apiexport/{self.mine}/mine/clusters/"

    def _said(self, value: Any, who: str) -> Any:
        """Bob's words are his own."""
        if isinstance(value, str):
            named = value.replace("{mine}", self.mine).replace("{bobs}", self.bobs)
            for word, meaning in self._words.items() if who in (BOB, "bobs-robot") else ():
                named = named.replace(f"{{{word}}}", meaning)
            return named
        if isinstance(value, dict):
            return {name: self._said(one, who) for name, one in value.items()}
        return [self._said(one, who) for one in value] if isinstance(value, list) else value

    async def perform(self, step: Step) -> None:
        who = self.tokens.get(step.who, step.who)
        path, body = self._said(step.path, step.who), self._said(step.body, step.who)
        if "watch=1" in step.query:
            await self._watch(step.who, who, path, step.query.partition("resourceVersion=")[2])
            return
        headers = {"content_type": MERGE_PATCH} if step.method == "PATCH" else {}
        answer = await self.hub.of(who, step.method, path, body, self._said(step.query, step.who), **headers)
        if step.who in (ALICE, ROBOT):
            self.heard.append((answer.status, COUNTS.sub(b"", answer.body), answer.headers))

    async def _watch(self, who: str, token: str, path: str, since: str = "") -> None:
        if who not in (ALICE, ROBOT):
            return
        self.hub.token = token
        try:
            self.watches.append(await self.hub.watch(path, {"resourceVersion": since or "0"}))
        except AssertionError as refused:
            answer = refused.args[0]
            self.heard.append((answer.status, COUNTS.sub(b"", answer.body)))
        finally:
            self.hub.token = OPERATOR

    async def received(self) -> list[object]:
        async with self.hub.running_controllers() as controllers, asyncio.timeout(PATIENCE):
            await controllers.finished()
        told = [[COUNTS.sub(b"", line) for line in watch.lines] for watch in self.watches]
        return [*self.heard, *told, *await self._finally()]

    async def _finally(self) -> list[bytes]:
        """All that Alice has in the end, and can see of others."""
        paths = [
            "/api/v1/configmaps",
            "/api/v1/events",
            "/api/v1/namespaces",
            "/api/v1/secrets",
            "/apis",
            f"{APIS}/apibindings",
            f"{APIS}/apiexports",
            f"{TENANCY}/workspaces",
            "/apis/core.kcp.io/v1alpha1/logicalclusters",
            WIDGETS,
        ]
        places = (f"/clusters/{self.mine}", f"/clusters/{self.bobs}", f"{self.view}*", f"{self.view}{self.bobs}")
        asked = [*(place + path for place in places for path in paths), f"/clusters/{self.mine}/openapi/v2"]
        return [COUNTS.sub(b"", (await self.hub.of(ALICE, "GET", path)).body) for path in asked]


# --- steps ----------------------------------------------------------------------------------------

WHERE = st.sampled_from(["{mine}", "{bobs}", "root:org:alices", "root:org:bobs", "root:org", "root:org:none", "*"])
MINE = st.sampled_from(["{mine}", "root:org:alices"])
PATHS = st.sampled_from(
    [MAPS, "/api/v1/configmaps", "/api/v1/namespaces", "/api/v1/events", WIDGETS, f"{TENANCY}/workspaces", "/apis"]
)


def reads(who: str, where: st.SearchStrategy[str]) -> st.SearchStrategy[Step]:
    queries = st.sampled_from(
        [
            "",
            "limit=1",
            "labelSelector=app%3Dx",
            "watch=1",
            "watch=1&resourceVersion=1",
            "fieldSelector=metadata.name%3Da",
        ]
    )
    return st.builds(
        lambda cluster, path, query: Step(who, "GET", f"/clusters/{cluster}{path}", None, query), where, PATHS, queries
    )


def config_map(name: str, **more: Any) -> Obj:
    return {"metadata": {"name": name, **more}, "data": {"k": "{secret}"}}


def writes(who: str, cluster: str, names: st.SearchStrategy[str]) -> st.SearchStrategy[Step]:
    at = f"/clusters/{cluster}"
    widgets = names if who in (ALICE, ROBOT) else st.just("shown")  # whoever exports the kind may see them
    return st.one_of(
        st.builds(lambda name: Step(who, "POST", at + MAPS, config_map(name)), names),
        st.builds(lambda name: Step(who, "POST", at + MAPS, config_map(name, labels={"app": "x"})), names),
        st.builds(lambda name: Step(who, "POST", f"{at}/api/v1/namespaces", {"metadata": {"name": name}}), names),
        st.builds(lambda name: Step(who, "DELETE", f"{at}{MAPS}/{name}"), names),
        st.builds(lambda name: Step(who, "PATCH", f"{at}{MAPS}/{name}", {"data": {"k": "{secret}"}}), names),
        st.builds(lambda name: Step(who, "POST", at + WIDGETS, {"metadata": {"name": name}}), widgets),
        st.just(Step(who, "POST", at + MAPS, {"metadata": {"generateName": "g-"}})),
        st.just(Step(who, "DELETE", at + MAPS)),
    )


def bobs() -> st.SearchStrategy[Step]:
    at = "/clusters/{bobs}"
    word = st.just("{name}")
    own = api_binding("{name}", "root:org:bobs", "his")
    return st.one_of(
        writes(BOB, "{bobs}", word),
        writes("bobs-robot", "{bobs}", word),
        st.sampled_from(
            [
                Step(BOB, "POST", f"{at}{APIS}/apibindings", own),
                Step(BOB, "DELETE", f"{at}{APIS}/apibindings/{{name}}"),
                Step(
                    BOB,
                    "POST",
                    f"{at}{TENANCY}/workspaces",
                    {"metadata": {"name": "{name}"}, "spec": {"type": {"name": "universal", "path": "root"}}},
                ),
                Step(BOB, "POST", f"{at}/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "{name}"}}),
                Step(
                    BOB,
                    "POST",
                    f"{at}/api/v1/namespaces/default/resourcequotas",
                    {
                        "metadata": {"name": "{name}"},
                        "spec": {"hard": {"configmaps": "50"}},
                    },  # or nobody could bring its CA back
                ),
            ]
        ),
    )


def alices() -> st.SearchStrategy[Step]:
    names = st.sampled_from(NAMES)
    view = "/services/apiexport/{mine}/mine/clusters/"
    views = st.builds(
        lambda cluster, path, query: Step(ALICE, "GET", f"{view}{cluster}{path}", None, query),
        st.sampled_from(["*", "{mine}", "{bobs}"]),
        st.sampled_from([WIDGETS, "/api/v1/configmaps", f"{APIS}/apibindings", "/apis", MAPS + "/a", "/metrics"]),
        st.sampled_from(["", "watch=1", "limit=1"]),
    )
    through = st.builds(
        lambda cluster, name: Step(ALICE, "POST", f"{view}{cluster}{MAPS}", config_map(name)),
        st.sampled_from(["*", "{mine}", "{bobs}"]),
        names,
    )
    intrusions = st.builds(
        lambda cluster, name, method: Step(ALICE, method, f"/clusters/{cluster}{MAPS}/{name}", {"data": {}}),
        st.sampled_from(["{bobs}", "root:org", "*"]),
        names,
        st.sampled_from(["PUT", "PATCH", "DELETE"]),
    )
    own = Step(ALICE, "POST", "/clusters/{mine}" + f"{APIS}/apibindings", api_binding("own", "root:org:alices", "mine"))
    return st.one_of(
        writes(ALICE, "{mine}", names),
        writes(ROBOT, "{mine}", names),
        reads(ALICE, WHERE),
        reads(ROBOT, WHERE),
        reads(ALICE, MINE),
        views,
        through,
        intrusions,
        st.just(own),
    )


def guests() -> st.SearchStrategy[Step]:
    """What Bob does with what Alice exports: she sees that, and nothing beside it."""
    at = "/clusters/{bobs}"
    decisions = [{}, {"permissionClaims": [{**CLAIM, "state": "Rejected"}]}]
    bound = [
        Step(BOB, "POST", f"{at}{APIS}/apibindings", api_binding("guest", "root:org:alices", "mine", **decision))
        for decision in decisions
    ]
    return st.sampled_from(
        [
            *bound,
            Step(BOB, "POST", at + WIDGETS, {"metadata": {"name": "shown"}}),
            Step(BOB, "DELETE", f"{at}{WIDGETS}/shown"),
            Step(BOB, "DELETE", f"{at}{APIS}/apibindings/guest"),
        ]
    )


async def play(steps: list[Step], words: Mapping[str, str]) -> list[object]:
    tenants = await Tenants(words).settle()
    for step in steps:
        await tenants.perform(step)
    return await tenants.received()


ONE = {"name": "b-one", "secret": "one"}
TWO = {"name": "another-name-altogether", "secret": "two two two"}


async def check_words(steps: list[Step]) -> None:
    assert await play(steps, ONE) == await play(steps, TWO)


async def check_absence(steps: list[Step]) -> None:
    assert await play(steps, ONE) == await play([step for step in steps if step.who in (ALICE, ROBOT)], ONE)


CLASH = [
    Step(BOB, "POST", f"/clusters/{{bobs}}{APIS}/apibindings", api_binding("{name}", "root:org:bobs", "his")),
    Step(BOB, "POST", f"/clusters/{{bobs}}{APIS}/apibindings", api_binding("guest", "root:org:alices", "mine")),
]


@settings(max_examples=examples(30))
@example(steps=CLASH)
@given(steps=st.lists(st.one_of(alices(), bobs(), guests()), min_size=4, max_size=40))
async def test_what_others_have_changes_nothing(steps: list[Step]) -> None:
    await check_words(steps)


@settings(max_examples=examples(30))
@given(steps=st.lists(st.one_of(alices(), bobs()), min_size=4, max_size=40))
async def test_it_is_as_if_there_were_no_others(steps: list[Step]) -> None:
    await check_absence(steps)
