"""Jobs in every order of events: each pod is counted once, despite crashes and deletions."""

from __future__ import annotations

from typing import Any

from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from workload_model import PODS, Model, template

from farflung.apis.names import JOBS
from farflung.controllers.workload.job.decide import decide, format_indexes, index_of, is_tracked, parse_indexes
from farflung.controllers.workload.model.objects import is_condition_true, is_terminating
from farflung.controllers.workload.model.pods import is_active, is_finished
from farflung.controllers.workload.model.steps import WriteStep
from farflung.machinery.errors import Obj
from farflung.runtime.plan import Update

LONG = 300
MOST = 3  #: pods at work at a time
LABELS = {"job-name": "sum"}


class Run(Model):
    def __init__(self, spec: Obj) -> None:
        super().__init__()
        whole = {"backoffLimit": 1000, "selector": {"matchLabels": LABELS}, "template": template("1", LABELS), **spec}
        self.create(JOBS, {"metadata": {"name": "sum", "namespace": "default"}, "spec": whole})
        self.born: set[str] = set()
        self.dropped: set[str] = set()  #: pods that are not to be counted

    @property
    def job(self) -> Obj:
        return self.get(JOBS, "sum")

    def look(self, most: int = 1000) -> int:
        """Crashes after so many steps."""
        steps = decide(self.job, self.of(PODS, self.job), self.suffix, self.now).steps[:most]
        for step in steps:
            self._note(step)
            self.perform([step])
        self.born |= {pod["metadata"]["uid"] for pod in self.all(PODS)}
        assert len(self.active()) <= MOST
        return len(steps)

    def _note(self, step: WriteStep) -> None:
        if isinstance(step.write, Update) and step.write.collection == PODS:
            pod = self.get(PODS, step.write.name)
            if is_active(pod) and is_tracked(pod) and not is_tracked(dict(step.write.object)):
                self.dropped.add(pod["metadata"]["uid"])

    def counted(self) -> int:
        status = self.job["status"]
        waiting = status.get("uncountedTerminatedPods") or {}
        return int(status.get("failed", 0)) + int(status.get("succeeded", 0)) + sum(map(len, waiting.values()))

    def settle(self) -> None:
        for _ in range(LONG):
            self.later(700)
            done = self.look()
            for pod in self.all(PODS):
                if is_terminating(pod):
                    self.leave(pod)
                elif not is_finished(pod):
                    self.end(pod, "Succeeded")
                    done += 1
            if not done and is_condition_true(self.job["status"], "Complete"):
                return
        raise AssertionError(f"it does not end: {self.job['status']}")


SPECS = st.one_of(
    st.fixed_dictionaries({"parallelism": st.integers(1, MOST), "completions": st.integers(0, 5)}),
    st.fixed_dictionaries(
        {"parallelism": st.integers(1, MOST), "completions": st.integers(1, 5), "completionMode": st.just("Indexed")}
    ),
    st.fixed_dictionaries({"parallelism": st.integers(1, MOST)}),
)
REPLACING = st.sampled_from(["TerminatingOrFailed", "Failed"])
EVENTS = st.one_of(
    st.tuples(st.just("look"), st.integers(0, 4)),
    st.tuples(st.just("look"), st.just(100)),
    st.tuples(st.sampled_from(["run", "succeed", "fail", "leave", "lose"]), st.integers(0, 10)),
    st.tuples(st.just("suspend"), st.booleans()),
    st.tuples(st.just("parallelism"), st.integers(1, MOST)),
    st.tuples(st.just("later"), st.integers(0, 30)),
)


def happen(model: Run, what: str, how: Any) -> None:
    pods = model.all(PODS)
    one = pods[how % len(pods)] if pods else None
    match what:
        case "look":
            model.look(how)
        case "suspend":
            model.change(JOBS, "sum", suspend=how)
        case "parallelism":
            model.change(JOBS, "sum", parallelism=how)
        case "later":
            model.later(how)
        case "run" if one is not None:
            model.run(one)
        case "succeed" if one is not None:
            model.end(one, "Succeeded")
        case "fail" if one is not None:
            model.end(one, "Failed")
        case "leave" if one is not None:
            model.leave(one)
        case "lose" if one is not None:
            model.delete(PODS, one["metadata"]["name"])


@settings(max_examples=examples(80))
@given(SPECS, REPLACING, st.lists(EVENTS, max_size=50))
def test_each_pod_is_counted_once_and_enough_succeed(spec: Obj, policy: str, history: list[tuple[str, Any]]) -> None:
    model = Run(spec | {"podReplacementPolicy": policy})
    for what, how in history:
        happen(model, what, how)
        assert model.counted() <= len(model.born)
    model.change(JOBS, "sum", suspend=False)
    model.settle()
    status = model.job["status"]
    indexed, wanted = spec.get("completionMode") == "Indexed", spec.get("completions")
    assert status["uncountedTerminatedPods"] == {}
    assert not any(is_tracked(pod) for pod in model.all(PODS))
    if indexed:
        assert parse_indexes(status["completedIndexes"], wanted) == set(range(wanted))
        assert all(0 <= index_of(pod) < wanted for pod in model.all(PODS))
        assert model.counted() + len(model.dropped) <= len(model.born)
    else:
        assert model.counted() + len(model.dropped) == len(model.born)
    if wanted is not None:
        assert status.get("succeeded", 0) >= wanted


@given(st.sets(st.integers(0, 40)))
def test_indexes_are_read_as_they_were_written(indexes: set[int]) -> None:
    assert parse_indexes(format_indexes(indexes), 100) == indexes


def test_indexes_are_written_as_upstream_does() -> None:
    assert format_indexes([0, 1, 3, 4, 5, 7]) == "0,1,3-5,7"
    assert parse_indexes("0-9,nonsense,3-", 4) == {0, 1, 2, 3}
