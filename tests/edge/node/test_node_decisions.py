"""Pure decisions of a node: expansion, restarts, probes, phases."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.edge.node.environment import (
    DownwardAPI,
    PodConfigError,
    environment,
    expand,
    field_value,
    referenced_objects,
    resource_value,
)
from farflung.edge.node.probes import Probe, ProbeCount, handler_ports
from farflung.edge.node.status import (
    ContainerRole,
    ContainerStatus,
    CrashBackoff,
    PodState,
    is_same_status,
    phase_of,
    pod_status,
    restart_delay,
)
from farflung.edge.node.volume_files import VolumeFile, requested_tokens, volume_files
from farflung.edge.runtimes.base import ContainerExit, StartedContainer
from farflung.machinery.errors import Obj

NOW = datetime(2026, 11, 16, 6, 30, tzinfo=UTC)
LATER = "2026-11-16T06:31:00Z"

# --- $(VAR) ---------------------------------------------------------------------------------------


def expanded_stepwise(text: str, values: dict[str, str]) -> str:
    """As Kubernetes describes it, one character after the other."""
    written, at = "", 0
    while at < len(text):
        rest = text[at + 1 :]
        if text[at] != "$" or not rest:
            written, at = written + text[at], at + 1
        elif rest[0] == "$":
            written, at = written + "$", at + 2
        elif rest[0] == "(" and ")" in rest:
            name = rest[1 : rest.index(")")]
            written, at = written + values.get(name, f"$({name})"), at + 1 + rest.index(")") + 1
        else:
            written, at = written + "$", at + 1
    return written


@given(st.text(alphabet="$()AB \n", max_size=30))
def test_variables_are_expanded_as_kubernetes_describes_it(text: str) -> None:
    values = {"A": "$(B)", "B": "b", "": "nothing", "$(A": "odd"}
    assert expand(text, values) == expanded_stepwise(text, values)


@pytest.mark.parametrize(
    "text, result",
    [
        ("$(A)", "1"), ("$$(A)", "$(A)"), ("$$$(A)", "$1"), ("$(NO)", "$(NO)"), ("$(A", "$(A"), ("$A", "$A"),
        ("a$", "a$"), ("$($(A))", "$($(A))"), ("$(A)$(A)", "11"),
    ],
)  # fmt: skip
def test_a_text_is_expanded_once(text: str, result: str) -> None:
    assert expand(text, {"A": "1"}) == result


# --- where variables and files come from ----------------------------------------------------------

OBJECTS = {
    ("ConfigMap", "c"): {"kind": "ConfigMap", "metadata": {"namespace": "n"}, "data": {"a": "1", "b=": "x"},
                         "binaryData": {"raw": "/w=="}},
    ("Secret", "s"): {"kind": "Secret", "metadata": {"namespace": "n"}, "data": {"p": "cGFzcw==", "raw": "/w=="}},
}  # fmt: skip
NOTHING = DownwardAPI(lambda path: path, lambda reference: "0")


def find(kind: str, name: str) -> Obj | None:
    return OBJECTS.get((kind, name))


@pytest.mark.parametrize(
    "container, result",
    [
        ({}, {}),
        ({"env": [{"name": "A"}]}, {"A": ""}),
        ({"envFrom": [{"prefix": "P", "configMapRef": {"name": "c"}}]}, {"Pa": "1"}),
        ({"envFrom": [{"secretRef": {"name": "s"}}]}, {"p": "pass", "raw": "\N{REPLACEMENT CHARACTER}"}),
        ({"envFrom": [{"secretRef": {"name": "no", "optional": True}}]}, {}),
        ({"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}]}, {"A": "x"}),
        ({"env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "no", "optional": True}}}]}, {}),
        (
            {
                "envFrom": [{"configMapRef": {"name": "c"}}],
                "env": [{"name": "a", "value": "2"}, {"name": "b", "value": "$(a)"}],
            },
            {"a": "2", "b": "2"},
        ),
    ],
)  # fmt: skip
def test_the_environment_is_put_together_in_order(container: Obj, result: dict[str, str]) -> None:
    assert environment(container, find, NOTHING) == result


@pytest.mark.parametrize(
    "container, said",
    [
        ({"envFrom": [{"configMapRef": {"name": "no"}}]}, 'configmap "no" not found'),
        ({"envFrom": [{"secretRef": {"name": "no"}}]}, 'secret "no" not found'),
        (
            {"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "no"}}}]},
            "couldn't find key no in Secret n/s",
        ),
        ({"env": [{"name": "A", "valueFrom": {"fileKeyRef": {}}}]}, "does not support"),
    ],
)  # fmt: skip
def test_a_missing_reference_of_a_variable_is_named(container: Obj, said: str) -> None:
    with pytest.raises(PodConfigError, match=said):
        environment(container, find, NOTHING)


def test_files_come_from_several_sources_and_the_last_one_counts() -> None:
    sources = [
        {"configMap": {"name": "c", "items": [{"key": "a", "path": "x/a"}, {"key": "raw", "path": "b"}]}},
        {"secret": {"name": "s", "items": [{"key": "p", "path": "b", "mode": 0o400}]}},
        {"downwardAPI": {"items": [{"path": "d", "fieldRef": {"fieldPath": "metadata.name"}}]}},
        {"serviceAccountToken": {"path": "token", "audience": "vault"}},
    ]
    volume = {"name": "v", "projected": {"sources": sources, "defaultMode": 0o440}}
    assert volume_files(volume, find, NOTHING, lambda wanted: f"token for {wanted.audience}") == {
        "x/a": VolumeFile(b"1", 0o440),
        "b": VolumeFile(b"pass", 0o400),
        "d": VolumeFile(b"metadata.name", 0o440),
        "token": VolumeFile(b"token for vault", 0o440),
    }
    assert [(one.audience, one.seconds) for one in requested_tokens([volume])] == [("vault", 3600)]


@pytest.mark.parametrize("path", ["/etc/passwd", "../x", "a/../../x", "..data", "..2026/x", "", "a//b", "a\0"])
def test_a_file_never_leaves_its_volume(path: str) -> None:
    volume = {"configMap": {"name": "c", "items": [{"key": "a", "path": path}]}}
    with pytest.raises(PodConfigError, match="not a path within a volume"):
        volume_files(volume, find, NOTHING, lambda _: "")


def test_all_references_of_a_pod_are_found() -> None:
    pod = {
        "spec": {
            "initContainers": [{"envFrom": [{"secretRef": {"name": "s1"}}]}],
            "containers": [{"env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "c1", "key": "k"}}}]}],
            "volumes": [
                {"configMap": {"name": "c2"}},
                {"secret": {"secretName": "s2"}},
                {"projected": {"sources": [{"configMap": {"name": "c3"}}, {"secret": {"name": "s3"}}]}},
            ],
        }
    }
    kinds = {"c": "ConfigMap", "s": "Secret"}
    assert referenced_objects(pod) == {(kinds[name[0]], name) for name in ("s1", "c1", "c2", "s2", "c3", "s3")}


@pytest.mark.parametrize(
    "reference, value",
    [
        ({"resource": "limits.cpu"}, "1"),
        ({"resource": "limits.cpu", "divisor": "1m"}, "250"),
        ({"resource": "requests.memory", "divisor": "1Mi"}, "10"),
        ({"resource": "limits.memory", "divisor": "1Gi"}, "8"),
        ({"resource": "requests.ephemeral-storage"}, "0"),
    ],
)
def test_resource_fields_use_the_divisor_and_are_rounded_up(reference: Obj, value: str) -> None:
    container = {"resources": {"limits": {"cpu": "250m"}, "requests": {"memory": "10Mi"}}}
    assert resource_value(container, reference, {"memory": "8Gi", "cpu": "4"}) == value


def test_an_unsupported_field_path_is_refused() -> None:
    pod = {"metadata": {"annotations": {"a'b": "c"}}, "spec": {}}
    assert field_value(pod, "metadata.annotations['a'b']", "1.2.3.4") == "c"
    assert field_value(pod, "metadata.labels['no']", "1.2.3.4") == ""
    with pytest.raises(PodConfigError):
        field_value(pod, "spec.containers", "1.2.3.4")


# --- restarts and probes -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "policy, code, restarts",
    [("Always", 0, True), ("Always", 1, True), ("OnFailure", 0, False), ("OnFailure", 1, True), ("Never", 1, False)],
)
def test_the_restart_policy_decides_about_a_restart(policy: str, code: int, restarts: bool) -> None:
    status = ContainerStatus("main", "image", ContainerRole.MAIN, {"terminated": {"exitCode": code}})
    assert status.should_restart(policy) is restarts


def test_the_first_restart_is_at_once_and_the_others_are_further_and_further_apart() -> None:
    crashes, delays = CrashBackoff(), []
    for _ in range(8):
        crashes = crashes.after_exit(1)
        delays.append(crashes.delay)
    assert delays == [0, 10, 20, 40, 80, 160, 300, 300]
    assert crashes.after_exit(600).delay == 0
    assert restart_delay(10_000) == 300


RESULTS = st.lists(st.booleans(), max_size=30)


@given(RESULTS, st.integers(1, 4), st.integers(1, 4), st.sampled_from([None, True, False]))
def test_only_as_many_equal_results_as_the_threshold_change_the_state_of_a_probe(
    results: list[bool], successes: int, failures: int, first: bool | None
) -> None:
    probe, count = Probe({}, successes=successes, failures=failures), ProbeCount(passing=first)
    for result in results:
        count = count.after(result, probe)
    expected = first
    for end in range(1, len(results) + 1):
        needed = successes if results[end - 1] else failures
        if end >= needed and len(set(results[end - needed : end])) == 1:
            expected = results[end - 1]
    assert count.passing == expected


def test_the_numbers_of_a_probe_have_the_defaults_of_the_api() -> None:
    assert Probe.of({}) == Probe({}, 0, 10, 1, 1, 3, None)
    said = {"initialDelaySeconds": 5, "periodSeconds": 2, "timeoutSeconds": 3, "successThreshold": 4,
            "failureThreshold": 6, "terminationGracePeriodSeconds": 0}  # fmt: skip
    assert Probe.of(said) == Probe(said, 5, 2, 3, 4, 6, 0)


def test_ports_of_probes_count_as_ports_of_the_container() -> None:
    container = {
        "livenessProbe": {"httpGet": {"port": 8080}},
        "readinessProbe": {"tcpSocket": {"port": "named"}},
        "startupProbe": {"tcpSocket": {"port": 53, "host": "example.org"}},
        "lifecycle": {"preStop": {"httpGet": {"port": 9090}}},
    }
    assert handler_ports(container) == {8080, 9090}


# --- the status -----------------------------------------------------------------------------------


def told(*events: str, role: ContainerRole = ContainerRole.MAIN, name: str = "main") -> Obj:
    """A container after these transitions: `run`, `up`, `end 0`, `wait Reason`."""
    status = ContainerStatus(name, "image", role)
    for event in events:
        what, _, argument = event.partition(" ")
        if what == "run":
            status.run(StartedContainer("id", "image", {}), "image", "2026-11-16T06:30:00Z", status.attempt)
        elif what == "up":
            status.started = status.passing = True
        elif what == "end":
            status.end(ContainerExit(int(argument), NOW))
        else:
            status.wait(argument)
    return status.to_object()


@pytest.mark.parametrize(
    "containers, initialized, over, phase",
    [
        ([told()], True, False, "Pending"),
        ([told("run")], True, False, "Running"),
        ([told("run"), told()], True, False, "Pending"),
        ([told("run")], False, False, "Pending"),
        ([told("run", "end 1", "wait CrashLoopBackOff")], True, False, "Running"),
        ([told("run", "end 0")], True, False, "Running"),
        ([told("run", "end 0")], True, True, "Succeeded"),
        ([told("run", "end 0"), told("run", "end 1")], True, True, "Failed"),
        ([told()], True, True, "Failed"),
    ],
)
def test_the_phase_follows_from_the_containers(
    containers: list[Obj], initialized: bool, over: bool, phase: str
) -> None:
    facts = PodState((), tuple(containers), True, initialized, over)
    assert phase_of(facts, "Pending") == phase
    assert phase_of(facts, "Succeeded") == "Succeeded"


def pod(**status: object) -> Obj:
    return {"metadata": {"name": "one", "generation": 2}, "spec": {}, "status": status}


def test_a_status_keeps_fields_of_other_writers_and_transition_times() -> None:
    other = {"type": "example.org/Gate", "status": "True", "lastTransitionTime": LATER}
    first = pod_status(pod(qosClass="BestEffort", conditions=[other]), PodState((), (told("run"),), True, True, False),
                       "127.0.0.1", "2026-11-16T06:30:00Z")  # fmt: skip
    assert other in first["conditions"]
    assert first["qosClass"] == "BestEffort"
    assert first["observedGeneration"] == 2
    updated = pod_status(pod(**first), PodState((), (told("run", "up"),), True, True, False), "127.0.0.1", LATER)
    since = {one["type"]: one["lastTransitionTime"] for one in updated["conditions"]}
    assert since["Ready"] == since["ContainersReady"] == LATER
    assert since["Initialized"] == "2026-11-16T06:30:00Z"
    assert is_same_status(
        updated,
        pod_status(pod(**updated), PodState((), (told("run", "up"),), True, True, False), "127.0.0.1", "later"),
    )


def test_a_closed_gate_keeps_a_pod_from_being_ready() -> None:
    gated = pod() | {"spec": {"readinessGates": [{"conditionType": "example.org/Gate"}]}}
    status = pod_status(gated, PodState((), (told("run", "up"),), True, True, False), "127.0.0.1", LATER)
    ready = next(one for one in status["conditions"] if one["type"] == "Ready")
    assert ready["reason"] == "ReadinessGatesNotReady"
    assert ready["message"] == 'the status of pod readiness gate "example.org/Gate" is not "True", but False'


@given(st.lists(st.sampled_from(["run", "up", "end 0", "end 1", "wait CrashLoopBackOff", "lose"]), max_size=12))
def test_restarts_are_counted_across_restarts_of_the_node(events: list[str]) -> None:
    status, starts = ContainerStatus("main", "image", ContainerRole.MAIN), 0
    for event in events:
        what, _, argument = event.partition(" ")
        running = "running" in status.state
        if what == "run" and not running:
            status.run(StartedContainer("id", "image", {}), "image", LATER, status.attempt)
            starts += 1
        elif what == "end" and running:
            status.end(ContainerExit(int(argument), NOW))
        elif what == "wait" and not running:
            status.wait(argument)
        elif what == "lose":
            status = ContainerStatus.of(
                {"name": "main", "image": "image"}, ContainerRole.MAIN, status.to_object(), LATER
            )
            assert "running" not in status.state
        assert status.restarts == max(0, starts - 1)
        assert status.attempt == starts or "running" in status.state
