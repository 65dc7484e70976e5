"""What mailboxes have and what syncers are told, whatever happens to workloads, placements, copies and the line."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest
from examples import examples
from fleet import EDGE
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st
from local_transport import LocalTransport
from platform_harness import APIS, MASTER
from translated import (
    DEFINITIONS,
    NAMESPACES,
    PROD,
    PROJECTED,
    RBAC,
    World,
    config_map,
    definition,
    deployment,
    inside,
    namespace,
    secret,
    widget,
    world,
)

from farflung.apis.edge.names import DOWNSYNC_OVERWRITE, PROJECTION
from farflung.client.discovery import discover
from farflung.client.rest import Client
from farflung.machinery.errors import Obj
from farflung.placement.feeds import copied_kinds
from farflung.placement.names import GroupResource, ObjectRef
from farflung.placement.project import strip
from farflung.placement.select import UpsyncSet
from farflung.placement.syncer_config import spec_of
from farflung.store.base import Change

SYNCER = "edge.kcp.io/syncer"  #: the finalizer
BOXES = ["florin", "guilder", "krone"]
TARGETS = dict(zip(BOXES, ("prod", "dev", "prod"), strict=True))
SPACES = ["one", "two"]
MAPS, SECRETS = GroupResource("", "configmaps"), GroupResource("", "secrets")
DEPLOYMENTS, WIDGETS = GroupResource("apps", "deployments"), GroupResource("example.org", "widgets")
ROLES, SPACE = GroupResource("rbac.authorization.k8s.io", "clusterroles"), GroupResource("", "namespaces")
DEFINITION, BINDING = (
    GroupResource("apiextensions.k8s.io", "customresourcedefinitions"),
    GroupResource("apis.kcp.io", "apibindings"),
)
CUSTOMIZER = GroupResource("edge.kcp.io", "customizers")
OUTSIDE = {
    SPACE: NAMESPACES,
    ROLES: f"{RBAC}/clusterroles",
    DEFINITION: DEFINITIONS,
    BINDING: f"{APIS}/apibindings",
}
INSIDE = {
    MAPS: ("configmaps", "v1"),
    SECRETS: ("secrets", "v1"),
    DEPLOYMENTS: ("deployments", "apps/v1"),
    WIDGETS: ("widgets", "example.org/v1"),
}
EVERYTHING = {
    **OUTSIDE,
    **{resource: f"/{'api' if v == 'v1' else 'apis'}/{v}/{plural}" for resource, (plural, v) in INSIDE.items()},
}
WIDGET_DEFINITION = ObjectRef(DEFINITION, "", "widgets.example.org")
UPSYNC = {"apiGroup": "group1.test", "resources": ["sprockets"], "namespaces": ["orbital"], "names": ["*"]}
CUSTOM = {"edge.kcp.io/expand-parameters": "true", "edge.kcp.io/customizer": "one/cz"}


class How(NamedTuple):
    """How a part is selected."""

    whole: bool = False
    create_only: bool = False


class What(NamedTuple):
    """What a placement says, and the same as a function."""

    spec: Obj
    selects: Callable[[ObjectRef, Obj, Obj | None], How | None]  #: a part, the object, its namespace
    whole: Callable[[Obj], bool] = lambda _: False  #: whether all in a namespace goes


def labels_of(obj: Obj | None) -> Obj:
    return ((obj or {}).get("metadata") or {}).get("labels") or {}


def is_prod(obj: Obj | None) -> bool:
    return obj is not None and labels_of(obj).get("env") == "prod"


WHATS = [
    What(
        {"namespaceSelector": PROD},
        lambda ref, obj, around: How(whole=True) if ref.namespace and is_prod(around) else None,
        is_prod,
    ),
    What(
        {
            "namespaceSelector": PROD,
            "nonNamespacedObjects": [
                {"apiGroup": "apis.kcp.io", "resources": ["apibindings"], "resourceNames": ["kube"]},
                {"apiGroup": "", "resources": ["namespaces"], "resourceNames": ["one"]},
                {"apiGroup": ROLES.group, "resources": ["clusterroles"], "labelSelectors": [PROD]},
            ],
            "upsync": [UPSYNC],
        },
        lambda ref, obj, around: (
            How(whole=True)
            if ref.namespace and is_prod(around)
            else How()
            if ref in (ObjectRef(BINDING, "", "kube"), ObjectRef(SPACE, "", "one"))
            or (ref.resource == ROLES and is_prod(obj))
            else None
        ),
        is_prod,
    ),
    What(
        {"downsync": [{"apiGroup": "", "resources": ["configmaps"], "labelSelectors": [PROD]}]},
        lambda ref, obj, around: How() if ref.resource == MAPS and is_prod(obj) else None,
    ),
    What(
        {
            "downsync": [
                {"apiGroup": "", "resources": ["secrets"], "namespaces": ["one"], "createOnly": True},
                {"apiGroup": "example.org", "namespaceSelectors": [PROD]},
            ]
        },
        lambda ref, obj, around: (
            How(create_only=True)
            if ref.resource == SECRETS and ref.namespace == "one"
            else How()
            if ref.resource == WIDGETS and is_prod(around)
            else None
        ),
    ),
]


class Source(NamedTuple):
    cluster: str
    obj: Obj


class Model:
    """All that is in the workspaces now, and what follows from it by nested loops."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.objects: dict[str, dict[ObjectRef, Obj]] = {}
        self.placements: dict[tuple[str, str], tuple[What, list[str]]] = {}
        self.statuses: dict[tuple[str, str], Obj] = {}  #: of the placements
        self.locations: dict[str, Obj] = {}
        self.kinds: dict[str, dict[GroupResource, str]] = {}

    async def read(self, placed: dict[tuple[int, str], int]) -> Model:
        one = self.world
        for cluster in [*one.workloads, *one.boxes.values()]:
            self.objects[cluster] = await objects_of(one, cluster)
        for location in await one.items(one.inventory, "/apis/scheduling.kcp.io/v1alpha1/locations"):
            self.locations[location["metadata"]["name"]] = location
        for workload, cluster in enumerate(one.workloads):
            for obj in await one.items(cluster, f"{EDGE}/edgeplacements"):
                name = obj["metadata"]["name"]
                wanted = obj["spec"]["locationSelectors"][0].get("matchLabels", {}).items()
                led = [box for box, found in self.locations.items() if wanted <= labels_of(found).items()]
                self.placements[cluster, name] = WHATS[placed[workload, name]], led
                self.statuses[cluster, name] = obj.get("status") or {}
            line = LocalTransport(one.fleet.hub.function, MASTER)  # which never fails
            served = await discover(Client(line, f"/clusters/{cluster}"))
            self.kinds[cluster] = {
                resource: found.collection.version
                for resource, found in copied_kinds(served.resources()).items()
                if found.namespaced
            }
        return self

    # --- what is wanted ---------------------------------------------------------------------------

    def selected(self, cluster: str, what: What) -> dict[ObjectRef, How]:
        found: dict[ObjectRef, How] = {}
        for ref, obj in self.objects[cluster].items():
            around = self.objects[cluster].get(ObjectRef(SPACE, "", ref.namespace)) if ref.namespace else None
            if (
                ref.resource == CUSTOMIZER
                or is_system(ref)
                or is_going(obj)
                or (ref.namespace and (around is None or is_going(around)))
            ):
                continue
            if PROJECTED not in labels_of(obj) and (how := what.selects(ref, obj, around)):
                found[ref] = how
        return found

    def whole(self, cluster: str, what: What) -> set[str]:
        spaces = {ref.name: obj for ref, obj in self.objects[cluster].items() if ref.resource == SPACE}
        return {name for name, obj in spaces.items() if not is_going(obj) and what.whole(obj)}

    def owner(self, box: str, ref: ObjectRef) -> str:
        """The parent that keeps a name in a mailbox: the one with copies there.  Empty: none yet."""
        kept = owned_scope(ref)
        there = self.objects[self.world.boxes[box]].items()
        marks = {mark for other, obj in there if owned_scope(other) == kept for mark in marks_of(obj)}
        assert len(marks) <= 1, (box, ref, marks)
        return marks.pop() if marks else ""

    def permits(self, box: str, ref: ObjectRef, cluster: str) -> bool:
        if ref.resource in (DEFINITION, BINDING):
            return True  # all have the same content
        return self.owner(box, ref) in ("", self.world.tenants[cluster])

    def wanted(self, box: str) -> dict[ObjectRef, dict[str, How | None]]:
        """Why each part should be in a mailbox: the clusters of placements, and how it is selected there."""
        found = {
            ref: {cluster: how for cluster, how in why.items() if self.permits(box, ref, cluster)}
            for ref, why in self.asked(box).items()
        }
        return {ref: why for ref, why in found.items() if why}

    def asked(self, box: str) -> dict[ObjectRef, dict[str, How | None]]:
        """The same without a regard to parents."""
        found: dict[ObjectRef, dict[str, How | None]] = {}
        for (cluster, _), (what, led) in self.placements.items():
            if box not in led:
                continue
            selected = self.selected(cluster, what)
            needed = {ObjectRef(SPACE, "", ref.namespace) for ref in selected if ref.namespace}
            needed |= {ObjectRef(SPACE, "", name) for name in self.whole(cluster, what)}
            needed |= {WIDGET_DEFINITION for ref in selected if ref.resource == WIDGETS}
            needed |= {ObjectRef(BINDING, "", "kube") for ref in selected if ref.resource == DEPLOYMENTS}
            for ref in needed - selected.keys():
                found.setdefault(ref, {}).setdefault(cluster, None)
            for ref, how in selected.items():
                before = found.setdefault(ref, {}).get(cluster)
                create_only = how.create_only or (before is not None and before.create_only)
                found[ref][cluster] = How(how.whole, create_only)
        return found

    def expected(self, box: str) -> dict[ObjectRef, Obj | None]:
        """What should be in a mailbox with our mark; None: whatever it is."""
        there = self.objects[self.world.boxes[box]]
        wanted = self.wanted(box)
        theirs = {ref for ref, obj in there.items() if PROJECTED not in labels_of(obj)}
        found: dict[ObjectRef, Obj | None] = {}
        for ref, why in wanted.items():
            content = self.content(box, ref, why)
            if content is not MISSING and ref not in theirs:
                found[ref] = content
        # what somebody else put in keeps what is around it
        for ref in {ObjectRef(SPACE, "", ref.namespace) for ref in theirs if ref.namespace and not is_system(ref)}:
            if ref in there and ref not in theirs:
                found.setdefault(ref, None)
        for resource, bringer in ((WIDGETS, WIDGET_DEFINITION), (DEPLOYMENTS, ObjectRef(BINDING, "", "kube"))):
            if bringer in there and bringer not in theirs and any(ref.resource == resource for ref in theirs):
                found.setdefault(bringer, None)
        for resource, bringer in ((WIDGETS, WIDGET_DEFINITION), (DEPLOYMENTS, ObjectRef(BINDING, "", "kube"))):
            if bringer not in found and bringer not in theirs:
                found = {ref: content for ref, content in found.items() if ref.resource != resource}
        return found

    def content(self, box: str, ref: ObjectRef, why: dict[str, How | None]) -> Obj | None:
        """Without our marks.  MISSING: nowhere is anything of it; None: whatever is there."""
        chosen = [cluster for cluster, how in why.items() if how is not None]
        if ref.resource == SPACE and not chosen:
            return {"metadata": {"name": ref.name}}
        sources = [
            Source(cluster, obj)
            for cluster in (chosen if ref.resource == SPACE else why)
            if (obj := self.objects[cluster].get(ref)) is not None and not is_going(obj)
            if PROJECTED not in labels_of(obj)
        ]
        if not sources:
            return MISSING
        if any(how is not None and how.create_only for how in why.values()):
            return None
        obj = together(sources)
        if "edge.kcp.io/customizer" not in (obj["metadata"].get("annotations") or {}):
            return obj
        return self.customized(box, sources, obj)

    def customized(self, box: str, sources: list[Source], obj: Obj) -> Obj | None:
        latest = max(sources, key=lambda one: int(one.obj["metadata"]["resourceVersion"]))
        customizer = self.objects[latest.cluster].get(ObjectRef(CUSTOMIZER, "one", "cz"))
        value = customizer["replacements"][0]["value"] if customizer is not None else "broken"
        if value == "broken":
            return None
        tone = labels_of(self.locations[box]).get("tone")
        data = {key: text.replace("%(tone)", tone) if tone else text for key, text in obj["data"].items()}
        return {**obj, "data": {**data, "extra": value.strip('"')}}

    def told(self, box: str) -> Obj:
        """What its syncer should be told."""
        namespaces: set[str] = set()
        resources: dict[GroupResource, str] = {}
        refs: set[ObjectRef] = set()
        upsync: set[UpsyncSet] = set()
        for (cluster, _), (what, led) in self.placements.items():
            if box not in led:
                continue
            whole, selected = self.whole(cluster, what), self.selected(cluster, what)
            whole = {name for name in whole if self.permits(box, ObjectRef(SPACE, "", name), cluster)}
            selected = {ref: how for ref, how in selected.items() if self.permits(box, ref, cluster)}
            namespaces |= whole
            resources |= self.kinds[cluster] if whole else {}
            refs |= {ref for ref, how in selected.items() if not how.whole}
            if any(ref.resource == WIDGETS for ref in selected) and WIDGET_DEFINITION in self.objects[cluster]:
                refs.add(WIDGET_DEFINITION)
            if "upsync" in what.spec:
                upsync.add(UpsyncSet("group1.test", ("sprockets",), ("orbital",), ("*",)))
        there = self.objects[self.world.boxes[box]]
        versions = {MAPS: "v1", SECRETS: "v1", SPACE: "v1", ROLES: "v1", DEFINITION: "v1", BINDING: "v1alpha1"}
        if WIDGET_DEFINITION in there:
            versions[WIDGETS] = "v1"
        if ObjectRef(BINDING, "", "kube") in there:
            versions[DEPLOYMENTS] = "v1"
        return spec_of(
            namespaces=namespaces, resources=resources, refs=refs, versions=versions | resources, upsync=upsync
        )


MISSING: Obj = {"missing": True}


def owned_scope(ref: ObjectRef) -> ObjectRef:
    return ObjectRef(SPACE, "", ref.namespace) if ref.namespace else ref


def marks_of(obj: Obj) -> list[str]:
    """The tenants in the mark of a copy."""
    annotations = obj["metadata"].get("annotations") or {}
    tenants: list[str] = json.loads(annotations.get(PROJECTION, "{}")).get("families", [])
    return tenants if PROJECTED in labels_of(obj) else []


class Separation:
    """Fails at any write that puts copies of two parents into one namespace, or replaces one's copy by the other's."""

    def __init__(self, world: World) -> None:
        self._boxes = {cluster: box for box, cluster in world.boxes.items()}
        self._copy_tenants: dict[str, tuple[tuple[str, str], list[str]]] = {}  #: by key in the store
        self.broken: list[str] = []
        for resource in (SPACE, MAPS, SECRETS, ROLES):
            world.fleet.hub.store.subscribe(f"/{resource.group or 'core'}/{resource.resource}/", self._on_changes)

    def _on_changes(self, changes: Sequence[Change]) -> None:
        for change in changes:
            self._copy_tenants.pop(change.key, None)
            if change.entry is not None and PROJECTION.encode() in change.entry.value:
                self._add(change.key, json.loads(change.entry.value))

    def _add(self, key: str, obj: Obj) -> None:
        metadata = obj["metadata"]
        cluster = metadata["annotations"].get("kcp.io/cluster", "")
        marks = marks_of(obj)
        if cluster not in self._boxes or not marks:
            return
        space = metadata["name"] if "/namespaces/" in key else metadata.get("namespace") or key
        self._copy_tenants[key] = (cluster, space), marks
        found = {mark for scope, some in self._copy_tenants.values() if scope == (cluster, space) for mark in some}
        if len(found) > 1:
            self.broken.append(f"{space} in {self._boxes[cluster]} has {found} since {key}")


def is_system(ref: ObjectRef) -> bool:
    return ref.name in ("kube-root-ca.crt", "default") and ref.resource != SPACE


def is_going(obj: Obj) -> bool:
    return "deletionTimestamp" in obj["metadata"]


def together(sources: list[Source]) -> Obj:
    """Those that were changed last count where they disagree."""
    result: Obj = {}
    for source in sorted(sources, key=lambda one: int(one.obj["metadata"]["resourceVersion"])):
        bare = strip(source.obj)
        for name, section in bare.items():
            if name == "metadata":
                before = result.get("metadata", {})
                merged = {**before, **section}
                for field in ("labels", "annotations"):
                    merged[field] = {**before.get(field, {}), **section.get(field, {})}
                result["metadata"] = merged
            elif name in ("data", "rules") and isinstance(section, dict):
                result[name] = {**result.get(name, {}), **section}
            else:
                result[name] = section
    return result


async def objects_of(one: World, cluster: str) -> dict[ObjectRef, Obj]:
    found: dict[ObjectRef, Obj] = {}
    customizers = {CUSTOMIZER: f"{EDGE}/customizers"}
    for resource, path in {**EVERYTHING, **customizers}.items():
        for obj in await one.items(cluster, path):
            metadata = obj["metadata"]
            found[ObjectRef(resource, metadata.get("namespace", ""), metadata["name"])] = obj
    return found


def is_of_user(key: str) -> bool:
    """Not ours, nor the server's, nor added by the one who disturbs copies."""
    prefix = key.partition("/")[0]
    servers = prefix in ("kcp.io", "kubernetes.io") or (prefix.endswith(".kcp.io") and prefix != "edge.kcp.io")
    return not servers and key not in (PROJECTED, PROJECTION, DOWNSYNC_OVERWRITE, "theirs")


def is_as(copy: Obj, wanted: Obj) -> bool:
    """Whether a copy has all that is wanted, with defaults of the server and what others added beside."""
    if is_going(copy):
        return False
    for field in ("labels", "annotations"):
        there = {key: value for key, value in (copy["metadata"].get(field) or {}).items() if is_of_user(key)}
        if there != (wanted["metadata"].get(field) or {}):
            return False
    sections = {name: section for name, section in wanted.items() if name not in ("apiVersion", "kind", "metadata")}
    if copy.get("data") != sections.get("data"):
        return False
    return all(covers(copy.get(name), section) for name, section in sections.items())


def covers(there: Any, wanted: Any) -> bool:
    if isinstance(wanted, dict):
        return isinstance(there, dict) and all(covers(there.get(key), value) for key, value in wanted.items())
    return bool(there == wanted)


class History:
    def __init__(self, world: World) -> None:
        self.world = world
        self.placed: dict[tuple[int, str], int] = {}
        self.theirs: dict[tuple[str, str], Obj] = {}  #: (mailbox, path) → what somebody else made

    async def wrong(self) -> str:
        """The first thing that is not as it should be."""
        model = await Model(self.world).read(self.placed)
        for box, cluster in self.world.boxes.items():
            there = {ref: obj for ref, obj in model.objects[cluster].items() if PROJECTED in labels_of(obj)}
            expected = model.expected(box)
            if there.keys() != expected.keys():
                missing, more = expected.keys() - there.keys(), there.keys() - expected.keys()
                broken = {ref for ref in missing if expected[ref] is None}
                if missing - broken or more:
                    return f"{box}: missing {[str(p) for p in missing]}, too many {[str(p) for p in more]}"
            for ref, content in expected.items():
                if content is not None and not is_as(there[ref], content):
                    return f"{box}: {ref} is {there[ref]} and not {content}"
            config = await self.world.get(cluster, f"{EDGE}/syncerconfigs/the-one")
            if config is None or config["spec"] != model.told(box):
                return f"{box}: its syncer is told {config and config['spec']} and not {model.told(box)}"
        for (cluster, name), (what, _) in model.placements.items():
            count = len(model.selected(cluster, what))
            if (status := model.statuses[cluster, name]).get("selectedObjectCount") != count:
                return f"{name} of {cluster}: {count} objects are selected, and its status is {status}"
        for (box, path), obj in self.theirs.items():
            if await self.world.copy(box, path) != obj:
                return f"{box}: {path} was touched"
        return ""

    async def let_go(self) -> None:
        """What is deleted, syncers take from their clusters."""
        for cluster in self.world.boxes.values():
            for ref, obj in (await objects_of(self.world, cluster)).items():
                held = obj["metadata"].get("finalizers") or []
                if is_going(obj) and SYNCER in held:
                    left = {"metadata": {"finalizers": [one for one in held if one != SYNCER]}}
                    await self.world.patch(cluster, path_of(ref), left)

    async def right(self) -> bool:
        await self.let_go()
        return not await self.wrong()

    async def settle(self) -> None:
        try:
            await self.world.fleet.eventually(self.right)
        except AssertionError as error:
            raise AssertionError(f"{await self.wrong()}\n{error}") from None


# --- what happens ---------------------------------------------------------------------------------

LABELS = st.dictionaries(st.just("env"), st.sampled_from(["prod", "dev"]))
ENV = st.sampled_from(["prod", "dev"])
WHICH = st.integers(0, 1)
SPACES_DRAWN = st.sampled_from(SPACES)
BOX = st.sampled_from(BOXES)
OBJECT = st.sampled_from(["map", "custom", "secret", "deployment", "widget", "role"])
STEPS = st.one_of(
    st.tuples(st.just("namespace"), st.tuples(WHICH, SPACES_DRAWN, LABELS)),
    st.tuples(st.just("object"), st.tuples(WHICH, OBJECT, SPACES_DRAWN, st.integers(0, 3), LABELS)),
    st.tuples(st.just("object"), st.tuples(WHICH, OBJECT, SPACES_DRAWN, st.integers(0, 3), LABELS)),
    st.tuples(st.just("no object"), st.tuples(WHICH, OBJECT, SPACES_DRAWN)),
    st.tuples(st.just("no namespace"), st.tuples(WHICH, SPACES_DRAWN)),
    st.tuples(st.just("placement"), st.tuples(WHICH, st.sampled_from(["p", "q"]), st.integers(0, len(WHATS) - 1), ENV)),
    st.tuples(st.just("placement"), st.tuples(WHICH, st.sampled_from(["p", "q"]), st.integers(0, len(WHATS) - 1), ENV)),
    st.tuples(st.just("no placement"), st.tuples(WHICH, st.sampled_from(["p", "q"]))),
    st.tuples(st.just("location"), st.tuples(BOX, ENV, st.sampled_from(["", "red", "blue"]))),
    st.tuples(st.just("customizer"), st.tuples(WHICH, st.sampled_from(['"x"', '"y"', "broken"]))),
    st.tuples(st.just("edit copy"), st.tuples(BOX, st.integers(0, 20))),
    st.tuples(st.just("no copy"), st.tuples(BOX, st.integers(0, 20))),
    st.tuples(st.just("hold copy"), st.tuples(BOX, st.integers(0, 20))),
    st.tuples(st.just("hold copy"), st.tuples(BOX, st.integers(0, 20))),
    st.tuples(st.just("theirs"), st.tuples(BOX, OBJECT, st.sampled_from([*SPACES, "theirs"]))),
    st.tuples(st.just("crash"), st.none()),
    st.tuples(st.just("cut"), WHICH),
    st.tuples(st.just("lose requests"), st.tuples(WHICH, st.integers(1, 5))),
    st.tuples(st.just("lose answers"), st.tuples(WHICH, st.integers(1, 5))),
    st.tuples(st.just("turns"), st.integers(1, 50)),
)
Step = tuple[str, Any]


def made(what: str, space: str, value: int, labels: dict[str, str]) -> tuple[str, Obj]:
    """The path of its collection, and an object."""
    values = {f"k{value % 2}": str(value)}
    match what:
        case "map":
            return inside(space, "configmaps"), config_map("m", values, labels=labels)
        case "custom":
            data = {**values, "greeting": "a %(tone) thing"}
            return inside(space, "configmaps"), config_map("c", data, labels=labels, annotations=CUSTOM)
        case "secret":
            return inside(space, "secrets"), secret("s", {"password": f"hunter{value}"}, labels=labels)
        case "deployment":
            return inside(space, "deployments", "apps/v1"), deployment("d", f"image:{value}", labels=labels)
        case "widget":
            return inside(space, "widgets", "example.org/v1"), widget("w", value, labels=labels)
        case _:
            rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", f"v{value}"]}]
            head = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole"}
            return OUTSIDE[ROLES], {**head, "metadata": {"name": "r", "labels": labels}, "rules": rules}


async def perform(history: History, step: Step) -> None:
    one, (what, how) = history.world, step
    lines = (one.fleet.transport, one.fleet.masters)
    match what:
        case "namespace":
            await one.put(one.workloads[how[0]], NAMESPACES, namespace(how[1], **how[2]))
        case "object":
            path, obj = made(*how[1:])
            await one.put(one.workloads[how[0]], path, obj)
        case "no object":
            path, obj = made(how[1], how[2], 0, {})
            await one.delete(one.workloads[how[0]], f"{path}/{obj['metadata']['name']}")
        case "no namespace":
            await one.delete(one.workloads[how[0]], f"{NAMESPACES}/{how[1]}")
        case "placement":
            history.placed[how[0], how[1]] = how[2]
            await one.placement(how[0], how[1], {"matchLabels": {"env": how[3]}}, **WHATS[how[2]].spec)
        case "no placement":
            await one.delete(one.workloads[how[0]], f"{EDGE}/edgeplacements/{how[1]}")
        case "location":
            await one.location(how[0], env=how[1], **({"tone": how[2]} if how[2] else {}))
        case "customizer":
            head = {"apiVersion": "edge.kcp.io/v1alpha1", "kind": "Customizer", "metadata": {"name": "cz"}}
            replacements = [{"path": "$.data.extra", "value": how[1]}]
            cluster = one.workloads[how[0]]
            await one.put(cluster, f"{EDGE}/namespaces/one/customizers", {**head, "replacements": replacements})
        case "edit copy" | "no copy" | "hold copy":
            await disturb(one, what, how[0], how[1])
        case "theirs":
            await put_theirs(history, how[0], how[1], how[2])
        case "crash":
            await one.restart()
        case "cut":
            lines[how].cut()
        case "lose requests":
            lines[how[0]].before = how[1]
        case "lose answers":
            lines[how[0]].after = how[1]
        case "turns":
            await turns(how)


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def path_of(ref: ObjectRef) -> str:
    return f"{inside(ref.namespace, *INSIDE[ref.resource]) if ref.namespace else OUTSIDE[ref.resource]}/{ref.name}"


async def disturb(one: World, what: str, box: str, number: int) -> None:
    """Somebody changes or deletes a copy, or a syncer holds it."""
    cluster = one.boxes[box]
    copies = [
        ref
        for ref, obj in (await objects_of(one, cluster)).items()
        if PROJECTED in labels_of(obj) and (ref.resource not in (SPACE, DEFINITION, BINDING) or what == "hold copy")
    ]
    if not copies:
        return
    ref = sorted(copies)[number % len(copies)]
    path = path_of(ref)
    if what == "no copy":
        await one.delete(cluster, path)
        return
    if what == "hold copy":
        found = await one.get(cluster, path)
        before = (found or {"metadata": {}})["metadata"].get("finalizers") or []
        await one.patch(cluster, path, {"metadata": {"finalizers": [*before, SYNCER]}})
        return
    change: Obj = {"metadata": {"labels": {"env": None, "theirs": "1"}, "annotations": {PROJECTION: None}}}
    if ref.resource == MAPS:
        change["data"] = {"k0": "theirs", "more": "theirs"}
    await one.patch(cluster, path, change)


async def put_theirs(history: History, box: str, what: str, space: str) -> None:
    """Somebody else makes something in a mailbox.  Who puts something into a namespace at the very moment in which it
    goes may lose it, so it counts if it is there a moment later."""
    one, cluster = history.world, history.world.boxes[box]
    if space == "theirs":
        await one.put(cluster, NAMESPACES, namespace("theirs"))
    path, obj = made(what, space, 9, {"env": "theirs"})
    where = f"{path}/{obj['metadata']['name']}"
    if await one.copy(box, where) is None and await one.put(cluster, path, obj) is not None:
        await turns(300)
        found = await one.copy(box, where)
        if found is not None and not is_going(found) and PROJECTED not in labels_of(found):
            around = await one.copy(box, f"{NAMESPACES}/{space}")
            if around is None or not is_going(around):
                history.theirs[box, where] = found


#: something of everything, so that the steps after it have something to change
BEGINNING: list[Step] = [
    *(("namespace", (workload, space, {"env": "prod"})) for workload in (0, 1) for space in SPACES),
    ("object", (0, "map", "one", 1, {"env": "prod"})),
    ("object", (1, "map", "one", 2, {"env": "prod"})),
    ("object", (0, "custom", "one", 1, {})),
    ("object", (0, "secret", "one", 1, {})),
    ("object", (0, "deployment", "two", 1, {})),
    ("object", (1, "widget", "one", 1, {})),
    ("object", (0, "role", "", 1, {"env": "prod"})),
    ("customizer", (0, '"x"')),
    *(("location", (box, env, "red")) for box, env in TARGETS.items()),
    ("placement", (0, "p", 1, "prod")),
    ("placement", (1, "p", 0, "prod")),
    ("placement", (0, "q", 3, "dev")),
]


@pytest.mark.slow
@settings(max_examples=examples(8), phases=[Phase.explicit, Phase.reuse, Phase.generate])  # to shrink takes too long
@given(st.lists(STEPS, max_size=30))
async def test_after_any_history_mailboxes_have_what_nested_loops_say_and_nothing_more_is_written(
    steps: list[Step],
) -> None:
    await compare(steps)


@pytest.mark.slow
@settings(max_examples=examples(8), phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(st.lists(STEPS, max_size=30))
@example([("no placement", (0, "p")), ("no placement", (0, "q")), ("placement", (0, "p", 1, "prod"))])
@example([("hold copy", ("florin", 1)), ("no namespace", (0, "one")), ("crash", None)])
async def test_workspaces_of_two_parents_share_no_name_in_a_mailbox_at_any_moment_of_any_history(
    steps: list[Step],
) -> None:
    await compare(steps, ("root:owners", "root:tenants"))


async def compare(steps: list[Step], parents: tuple[str, str] = ("root", "root")) -> None:
    async with world(*BOXES, parents=parents) as one:
        await one.must_put(one.workloads[1], DEFINITIONS, definition("v1"))
        history = History(one)
        separation = Separation(one)
        for step in BEGINNING:
            await perform(history, step)
        await history.settle()
        for step in steps:
            await perform(history, step)
        await history.settle()
        await one.at_rest()
        assert await history.wrong() == ""
        with one.fleet.hub.writes_nothing():
            await one.restart()
            await one.at_rest()
        assert await history.wrong() == ""
        assert "hunter" not in one.fleet.log.getvalue()
        assert len(set(one.tenants.values())) == 1 or not separation.broken
