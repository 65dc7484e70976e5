"""StatefulSets and DaemonSets in every order of events."""

from __future__ import annotations

from typing import Any

from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from workload_model import PODS, Model, template

from farflung.apis.names import CONTROLLER_HASH, CONTROLLER_REVISIONS, DAEMON_SETS, STATEFUL_SETS
from farflung.controllers.workload.daemonset import decide as daemons
from farflung.controllers.workload.daemonset.decide import REVISION, target_node
from farflung.controllers.workload.model.objects import is_terminating
from farflung.controllers.workload.model.pods import is_active, is_finished
from farflung.controllers.workload.model.revisions import find_current, record_template, revision_hash, truncate_history
from farflung.controllers.workload.statefulset import decide as stateful
from farflung.controllers.workload.statefulset.decide import ordinal
from farflung.machinery.errors import Obj

LABELS = {"app": "db"}
LONG = 300


class Sets(Model):
    def __init__(self, spec: Obj) -> None:
        super().__init__()
        whole = {"selector": {"matchLabels": LABELS}, "template": template("1", LABELS), "revisionHistoryLimit": 2}
        self.create(STATEFUL_SETS, {"metadata": {"name": "db", "namespace": "default"}, "spec": whole | spec})

    @property
    def owner(self) -> Obj:
        return self.get(STATEFUL_SETS, "db")

    def look(self) -> int:
        owner, revisions = self.owner, self.of(CONTROLLER_REVISIONS, self.owner)
        step = record_template(owner, STATEFUL_SETS, revisions, CONTROLLER_HASH)
        if step is not None:
            return self.perform([step])
        update = find_current(owner, revisions)
        assert update is not None
        whole = stateful.observe(owner, self.of(PODS, owner), revisions, update, self.now)
        done = self.perform(stateful.plan_pods(whole, frozenset()))
        whole = stateful.observe(owner, self.of(PODS, owner), revisions, update, self.now)
        done += self.perform(stateful.plan_status(whole).steps)
        return done + self.perform(truncate_history(owner, revisions, stateful.revisions_in_use(whole)))

    def settle(self) -> None:
        for _ in range(LONG):
            self.later(20)
            if not self.look() + self.work():
                return
        raise AssertionError("it does not end")

    @property
    def numbers(self) -> list[int]:
        return sorted(number for pod in self.all(PODS) if (number := ordinal(self.owner, pod)) is not None)


EVENTS = st.one_of(
    st.tuples(st.just("look"), st.none()),
    st.tuples(st.just("work"), st.none()),
    st.tuples(st.just("later"), st.integers(1, 20)),
    st.tuples(st.sampled_from(["run", "break", "fail", "leave", "lose"]), st.integers(0, 10)),
    st.tuples(st.just("image"), st.sampled_from(["1", "2", "3"])),
    st.tuples(st.just("replicas"), st.integers(0, 4)),
)
QUIET_EVENTS = st.one_of(
    st.tuples(st.just("look"), st.none()),
    st.tuples(st.sampled_from(["run", "leave"]), st.integers(0, 10)),
)
SPECS = st.fixed_dictionaries(
    {
        "replicas": st.integers(0, 4),
        "podManagementPolicy": st.sampled_from(["OrderedReady", "Parallel"]),
        "updateStrategy": st.just({"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}),
    },
    optional={"minReadySeconds": st.just(10)},
)


def happen(model: Model, what: str, how: Any) -> None:
    pods = model.all(PODS)
    one = pods[how % len(pods)] if pods and isinstance(how, int) else None
    match what:
        case "work":
            model.work()
        case "later":
            model.later(how)
        case "run" if one is not None:
            model.run(one)
        case "break" if one is not None:
            model.run(one, ready=False)
        case "fail" if one is not None:
            model.end(one, "Failed")
        case "leave" if one is not None:
            model.leave(one)
        case "lose" if one is not None:
            model.delete(PODS, one["metadata"]["name"])


@settings(max_examples=examples(60))
@given(SPECS, st.lists(EVENTS, max_size=50))
def test_a_stateful_set_ends_with_its_pods_all_of_the_present_template(
    spec: Obj, history: list[tuple[str, Any]]
) -> None:
    model = Sets(spec)
    for what, how in history:
        if what == "look":
            model.look()
        elif what == "image":
            model.change(STATEFUL_SETS, "db", template=template(how, LABELS))
        elif what == "replicas":
            model.change(STATEFUL_SETS, "db", replicas=how)
        else:
            happen(model, what, how)
    model.settle()
    owner = model.owner
    wanted, status = owner["spec"]["replicas"], owner["status"]
    assert model.numbers == list(range(wanted))
    images = {pod["spec"]["containers"][0]["image"] for pod in model.all(PODS)}
    assert images <= {owner["spec"]["template"]["spec"]["containers"][0]["image"]}
    assert [status.get(name, 0) for name in ("replicas", "readyReplicas", "updatedReplicas")] == [wanted] * 3
    assert status["currentRevision"] == status["updateRevision"]
    assert len(model.all(CONTROLLER_REVISIONS)) <= 3


@settings(max_examples=examples(40))
@given(st.integers(1, 4), st.lists(QUIET_EVENTS, max_size=40))
def test_an_ordered_set_starts_a_pod_only_when_those_before_it_are_well(
    replicas: int, history: list[tuple[str, Any]]
) -> None:
    model = Sets({"replicas": replicas, "podManagementPolicy": "OrderedReady"})
    for what, how in history:
        before = {pod["metadata"]["name"] for pod in model.all(PODS)}
        well = sum(pod["status"]["phase"] == "Running" for pod in model.all(PODS))
        model.look() if what == "look" else happen(model, what, how)
        new = {pod["metadata"]["name"] for pod in model.all(PODS)} - before
        assert len(new) <= 1
        assert not new or well == len(before)
        assert model.numbers == list(range(len(model.numbers)))


# --- DaemonSets -----------------------------------------------------------------------------------


def node(name: str, **labels: str) -> Obj:
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    return {"metadata": {"name": name, "labels": labels}, "spec": {}, "status": ready}


class Daemons(Model):
    def __init__(self, surge: int, unavailable: int) -> None:
        super().__init__()
        rolling = {"maxSurge": surge, "maxUnavailable": unavailable}
        spec = {
            "selector": {"matchLabels": LABELS},
            "template": template("1", LABELS),
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": rolling},
            "revisionHistoryLimit": 2,
        }
        self.create(DAEMON_SETS, {"metadata": {"name": "db", "namespace": "default"}, "spec": spec})
        self.nodes = [node("edge"), node("other")]

    @property
    def owner(self) -> Obj:
        return self.get(DAEMON_SETS, "db")

    def look(self) -> int:
        owner, revisions = self.owner, self.of(CONTROLLER_REVISIONS, self.owner)
        step = record_template(owner, DAEMON_SETS, revisions, REVISION)
        if step is not None:
            return self.perform([step])
        update = find_current(owner, revisions)
        assert update is not None
        hashed = revision_hash(update, REVISION)
        whole = daemons.observe(owner, self.of(PODS, owner), self.nodes, hashed, self.now)
        done = self.perform(daemons.plan_pods(whole, self.suffix))
        whole = daemons.observe(owner, self.of(PODS, owner), self.nodes, hashed, self.now)
        done += self.perform(daemons.plan_status(whole).steps)
        return done + self.perform(truncate_history(owner, revisions, daemons.revisions_in_use(whole, revisions)))

    def run(self, pod: Obj, *, ready: bool = True) -> None:
        where = target_node(pod)
        super().run(pod, ready=ready)
        if pod["spec"].get("nodeName"):
            pod["spec"]["nodeName"] = where

    def end(self, pod: Obj, outcome: str) -> None:
        where = target_node(pod)
        super().end(pod, outcome)
        pod["spec"]["nodeName"] = where

    def settle(self) -> None:
        for _ in range(LONG):
            self.later(20)
            if not self.look() + self.work():
                return
        raise AssertionError("it does not end")


@settings(max_examples=examples(60))
@given(st.sampled_from([(0, 1), (1, 0), (0, 2), (2, 0)]), st.lists(EVENTS, max_size=40))
def test_a_daemon_set_ends_with_one_pod_of_the_present_template_on_each_node(
    rolling: tuple[int, int], history: list[tuple[str, Any]]
) -> None:
    model = Daemons(*rolling)
    for what, how in history:
        if what == "look":
            model.look()
        elif what == "image":
            model.change(DAEMON_SETS, "db", template=template(how, LABELS))
        else:
            happen(model, what, how)
        for name in ("edge", "other"):
            there = [pod for pod in model.all(PODS) if target_node(pod) == name and is_active(pod)]
            assert len(there) <= 1 + bool(rolling[0])
    model.settle()
    pods = [pod for pod in model.all(PODS) if not is_finished(pod)]
    assert sorted(map(target_node, pods)) == ["edge", "other"]
    image = model.owner["spec"]["template"]["spec"]["containers"][0]["image"]
    assert {pod["spec"]["containers"][0]["image"] for pod in pods} == {image}
    status = model.owner["status"]
    assert (status["numberReady"], status["updatedNumberScheduled"]) == (2, 2)


def test_pods_are_deleted_for_a_no_execute_taint_and_stay_with_a_no_schedule_taint() -> None:
    model = Daemons(0, 1)
    model.settle()
    model.nodes[0]["spec"]["taints"] = [{"key": "full", "effect": "NoSchedule"}]
    model.nodes[1]["spec"]["taints"] = [{"key": "broken", "effect": "NoExecute"}]
    model.look()
    left = {target_node(pod): is_terminating(pod) for pod in model.all(PODS)}
    assert left == {"edge": False, "other": True}
    assert model.owner["status"]["numberMisscheduled"] == 2
