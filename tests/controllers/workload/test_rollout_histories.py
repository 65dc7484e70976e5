"""Rollouts in every order of events: never too many pods, never too few, and they finish."""

from __future__ import annotations

from typing import Any

from examples import examples
from hypothesis import example, given, settings
from hypothesis import strategies as st
from workload_model import DEPLOYMENTS, PODS, REPLICA_SETS, Model, deployment, template

from farflung.controllers.workload.deployment.decide import decide, max_surge, max_unavailable, replicas
from farflung.controllers.workload.model.objects import is_terminating
from farflung.controllers.workload.model.pods import is_finished
from farflung.controllers.workload.replicaset.decide import plan_pods, plan_status
from farflung.machinery.errors import Obj

LABELS = {"app": "web"}
WAIT = 10  #: seconds that a Pod has to be ready in some Deployments
LONG = 400  #: rounds in which everything must have come to an end


class Rollout(Model):
    def __init__(self, spec: Obj) -> None:
        super().__init__()
        self.create(DEPLOYMENTS, deployment(**spec))

    @property
    def owner(self) -> Obj:
        return self.get(DEPLOYMENTS, "web")

    def look_at_deployment(self) -> int:
        sets = self.of(REPLICA_SETS, self.owner)
        busy = frozenset(
            one["metadata"]["uid"] for one in sets if any(not is_finished(pod) for pod in self.of(PODS, one))
        )
        return self.perform(decide(self.owner, sets, busy, self.now).steps)

    def look_at_replica_sets(self) -> int:
        done = 0
        for one in self.of(REPLICA_SETS, self.owner):
            done += self.perform(plan_pods(one, self.of(PODS, one), self.suffix))
            done += self.perform(plan_status(one, self.of(PODS, one), "", self.now).steps)
        return done

    def look_at_one(self, number: int) -> None:
        """Pods of one, and its status at another time."""
        sets = self.of(REPLICA_SETS, self.owner)
        if sets:
            one = sets[number % len(sets)]
            self.perform(plan_pods(one, self.of(PODS, one), self.suffix))

    def settle(self) -> None:
        for _ in range(LONG):
            self.later(WAIT)
            if not self.look_at_deployment() + self.look_at_replica_sets() + self.work():
                return
        raise AssertionError("it does not end")

    def check_settled(self) -> None:
        desired = replicas(self.owner)
        status = self.owner["status"]
        assert [status.get(name, 0) for name in ("replicas", "updatedReplicas", "availableReplicas")] == [desired] * 3
        assert status["observedGeneration"] == self.owner["metadata"]["generation"]
        said = {one["type"]: (one["status"], one["reason"]) for one in status["conditions"]}
        assert said["Available"] == ("True", "MinimumReplicasAvailable")
        assert said["Progressing"] == ("True", "NewReplicaSetAvailable")
        images = {pod["spec"]["containers"][0]["image"] for pod in self.active()}
        assert images <= {self.owner["spec"]["template"]["spec"]["containers"][0]["image"]}
        assert len(self.active()) == desired


AMOUNTS = st.one_of(st.integers(0, 4), st.sampled_from(["0%", "10%", "25%", "50%", "100%"]))
ROLLING = st.tuples(AMOUNTS, AMOUNTS).filter(lambda both: any(each not in (0, "0%") for each in both))
STRATEGIES = st.one_of(
    ROLLING.map(lambda b: {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": b[0], "maxUnavailable": b[1]}}),
    st.just({"type": "Recreate"}),
)
SPECS = st.fixed_dictionaries(
    {"replicas": st.integers(0, 7), "strategy": STRATEGIES}, optional={"minReadySeconds": st.just(WAIT)}
)
EVENTS = st.one_of(
    st.tuples(st.just("deployment"), st.none()),
    st.tuples(st.just("replica sets"), st.none()),
    st.tuples(st.just("one"), st.integers(0, 5)),
    st.tuples(st.just("work"), st.none()),
    st.tuples(st.just("later"), st.integers(1, 2 * WAIT)),
    st.tuples(st.just("run"), st.integers(0, 20)),
    st.tuples(st.just("leave"), st.integers(0, 20)),
)
CHANGES = st.one_of(
    st.tuples(st.just("image"), st.sampled_from(["1", "2", "3"])),
    st.tuples(st.just("replicas"), st.integers(0, 7)),
    st.tuples(st.just("break"), st.integers(0, 20)),
    st.tuples(st.just("fail"), st.integers(0, 20)),
    st.tuples(st.just("lose"), st.integers(0, 20)),
    st.tuples(st.just("pause"), st.booleans()),
)


def happen(model: Rollout, what: str, how: Any) -> None:
    pods = model.all(PODS)
    one = pods[how % len(pods)] if pods and isinstance(how, int) else None
    match what:
        case "deployment":
            model.look_at_deployment()
        case "replica sets":
            model.look_at_replica_sets()
        case "one":
            model.look_at_one(how)
        case "work":
            model.work()
        case "later":
            model.later(how)
        case "image":
            model.change(DEPLOYMENTS, "web", template=template(how, LABELS))
        case "replicas":
            model.change(DEPLOYMENTS, "web", replicas=how)
        case "pause":
            model.change(DEPLOYMENTS, "web", paused=how)
        case "run" if one is not None:
            model.run(one)
        case "leave" if one is not None:
            model.leave(one)
        case "break" if one is not None:
            model.run(one, ready=False)
        case "fail" if one is not None:
            model.end(one, "Failed")
        case "lose" if one is not None:
            model.delete(PODS, one["metadata"]["name"])


@settings(max_examples=examples(60))
@given(SPECS, st.lists(st.one_of(EVENTS, CHANGES), max_size=40))
@example({"replicas": 1, "strategy": {"type": "Recreate"}}, [("deployment", None), ("replica sets", None), ("fail", 0)])
def test_whatever_happens_a_rollout_ends_as_it_should(spec: Obj, history: list[tuple[str, Any]]) -> None:
    model = Rollout(spec)
    for what, how in history:
        happen(model, what, how)
    model.change(DEPLOYMENTS, "web", paused=False)
    model.settle()
    model.check_settled()


@settings(max_examples=examples(60))
@given(SPECS.filter(lambda spec: spec["strategy"]["type"] == "RollingUpdate"), st.lists(EVENTS, max_size=60))
@example(
    {"replicas": 1, "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}},
    [("deployment", None), ("deployment", None), ("deployment", None), ("one", 1), ("replica sets", None)],
)
def test_while_it_rolls_there_are_never_too_many_pods_nor_too_few_available(
    spec: Obj, history: list[tuple[str, Any]]
) -> None:
    """As upstream, the Deployment limits what it asks of its ReplicaSets.  A ReplicaSet may be reconciled before
    another one has deleted its Pods, so the Pods are within the limit when all were reconciled."""
    model = Rollout(spec)
    model.settle()
    model.change(DEPLOYMENTS, "web", template=template("2", LABELS))
    least = spec["replicas"] - max_unavailable(model.owner)
    most = spec["replicas"] + max_surge(model.owner)
    for what, how in history:
        happen(model, what, how)
        assert model.available(spec.get("minReadySeconds", 0)) >= least, (what, how)
        assert sum(map(replicas, model.all(REPLICA_SETS))) <= most, (what, how)
        if what == "replica sets":
            assert len(model.active()) <= most
    model.settle()
    model.check_settled()


@settings(max_examples=examples(40))
@given(SPECS, st.lists(st.one_of(EVENTS, CHANGES), max_size=30))
def test_decisions_about_a_deployment_are_deterministic_and_do_not_change_their_input(
    spec: Obj, history: list[tuple[str, Any]]
) -> None:
    model = Rollout(spec)
    for what, how in history:
        happen(model, what, how)
    sets = model.of(REPLICA_SETS, model.owner)
    before = repr((model.owner, sets))
    first = decide(model.owner, sets, frozenset(), model.now)
    assert decide(model.owner, sets, frozenset(), model.now) == first
    assert repr((model.owner, sets)) == before


def test_recreate_never_has_pods_of_two_templates() -> None:
    model = Rollout({"replicas": 3, "strategy": {"type": "Recreate"}})
    model.settle()
    model.change(DEPLOYMENTS, "web", template=template("2", LABELS))
    for _ in range(20):
        model.look_at_deployment()
        model.look_at_replica_sets()
        images = {pod["spec"]["containers"][0]["image"] for pod in model.all(PODS)}
        assert len(images) <= 1
        for pod in model.all(PODS)[:1]:
            model.leave(pod) if is_terminating(pod) else model.run(pod)
    model.settle()
    model.check_settled()


def test_with_twelve_pods_a_quarter_is_three_more_and_three_fewer() -> None:
    model = Rollout({"replicas": 12})
    model.settle()
    model.change(DEPLOYMENTS, "web", template=template("2", LABELS))
    for _ in range(10):
        model.look_at_deployment()
    sizes = {
        one["spec"]["template"]["spec"]["containers"][0]["image"]: replicas(one) for one in model.all(REPLICA_SETS)
    }
    assert sizes == {"1": 9, "2": 6}
    assert (max_surge(model.owner), max_unavailable(model.owner)) == (3, 3)
