"""Embedded edges as users make them: real processes, real kubectl, real ports."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from edge_runner import EdgeUser, free_ports, kind_config, names
from hub_process import eventually

from farflung.edge.registry import Registry

pytestmark = pytest.mark.slow

WORKLOAD = """
apiVersion: v1
kind: Namespace
metadata:
  name: commonstuff
  labels: {common: "si"}
---
apiVersion: v1
kind: ConfigMap
metadata:
  namespace: commonstuff
  name: httpd-htdocs
data:
  index.html: |
    <!DOCTYPE html>
    <html>
      <body>
        This is a common web site.
      </body>
    </html>
---
apiVersion: apps/v1
kind: Deployment
metadata:
  namespace: commonstuff
  name: commond
spec:
  selector: {matchLabels: {app: common} }
  template:
    metadata:
      labels: {app: common}
    spec:
      containers:
      - name: httpd
        image: library/httpd:2.4
        ports:
        - name: http
          containerPort: 80
          hostPort: 8081
          protocol: TCP
        volumeMounts:
        - name: htdocs
          readOnly: true
          mountPath: /usr/local/apache2/htdocs
      volumes:
      - name: htdocs
        configMap:
          name: httpd-htdocs
          optional: false
"""
CREATE = ("create", "florin", "--runtime", "process")


@pytest.fixture
def user(tmp_path: Path) -> Iterator[EdgeUser]:
    user = EdgeUser(tmp_path)
    yield user
    user.edge("delete", "--all")
    user.has_nothing()


def configured(user: EdgeUser, mappings: dict[int, int]) -> tuple[str, str]:
    path = user.home / f"{'-'.join(map(str, mappings.values()))}.yaml"
    path.write_text(kind_config(mappings))
    return "--config", str(path)


def fetched(port: int) -> str:
    """What a web server says, as soon as it does."""
    page = ""

    def answers() -> bool:
        nonlocal page
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=10) as answer:
                page = answer.read().decode()
        except OSError:
            return False
        return True

    eventually(answers, f"an answer of port {port}")
    return page


def test_two_edges_at_once_are_made_listed_and_removed(user: EdgeUser) -> None:
    florin_port, guilder_port = free_ports(2)
    makers = [
        user.begin("create", name, "--runtime", "process", *configured(user, {8081: port}))
        for name, port in (("florin", florin_port), ("guilder", guilder_port))
    ]
    assert [maker.wait() for maker in makers] == [0, 0], user.log()

    florin, guilder = user.listed()
    assert (florin["name"], florin["status"], florin["pods"]) == ("florin", "Ready", {"running": 0, "all": 0})
    assert guilder["ports"] == [{"containerPort": 8081, "hostPort": guilder_port, "listenAddress": "127.0.0.1"}]
    assert sorted(names(user.config()["contexts"])) == ["kind-florin", "kind-guilder"]
    for name in ("florin", "guilder"):
        assert "default" in user.kubectl("get", "--context", f"kind-{name}", "ns")
        assert f"{name}-control-plane" in user.kubectl("get", "--context", f"kind-{name}", "nodes")
    table = user.ok("list").splitlines()
    assert table[0].split() == ["NAME", "STATUS", "API", "RUNTIME", "PORTS", "PODS", "AGE"]
    assert f"127.0.0.1:{florin_port}->8081/tcp" in table[1]

    assert user.ok("delete", "florin") == "edge florin deleted\n"
    assert names(user.config()["contexts"]) == ["kind-guilder"]
    assert [one["name"] for one in user.listed()] == ["guilder"]
    user.ok("delete", "--all")
    user.has_nothing()


def test_what_cannot_be_made_is_said_in_a_sentence_and_leaves_nothing(user: EdgeUser) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        mapped = configured(user, {8081: taken})
        assert user.refused(*CREATE, *mapped) == (
            f"port {taken} of 127.0.0.1 is in use by process {os.getpid()} ({command_line()})"
        )
    strange = user.home / "strange.yaml"
    strange.write_text("kind: Cluster\napiVersion: kind.x-k8s.io/v1alpha4\nnodes: [{}, {}]\n")
    assert user.refused(*CREATE, "--config", str(strange)) == (
        f"{strange}: it has 2 nodes, and an embedded edge has one"
    )
    assert user.refused(*CREATE, "--kubeconfig", str(user.home)).startswith("cannot read ")
    assert "is no name for an edge" in user.refused("create", "../florin")
    assert user.refused("delete", "florin").startswith("there is no edge florin; ")
    assert user.refused("start", "florin").startswith("there is no edge florin; ")
    assert user.ok("list") == "No edges found.\n"
    user.has_nothing()


def command_line() -> str:
    words = Path("/proc/self/cmdline").read_text().replace("\0", " ").strip()
    return words if len(words) <= 80 else f"{words[:80]}…"


def test_whoever_does_not_wait_has_nothing(user: EdgeUser) -> None:
    assert user.refused(*CREATE, "--wait", "0.2").startswith("edge florin was not ready within 0.2 seconds")
    user.has_nothing()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_creation_leaves_nothing(user: EdgeUser, number: signal.Signals) -> None:
    moments = {
        signal.SIGINT: lambda: (user.edges / "florin" / "edge.json").exists(),
        signal.SIGTERM: lambda: (user.edges / "florin" / "process").exists(),
        signal.SIGHUP: lambda: (user.edges / "florin" / "hub" / "admin.kubeconfig").exists(),
    }
    maker = user.begin(*CREATE)
    eventually(moments[number], "the moment")

    maker.send_signal(number)

    assert maker.wait() in (0, 1)
    if maker.returncode == 0:  # it was ready before
        user.ok("delete", "florin")
    user.has_nothing()


def test_a_killed_edge_comes_back_with_everything_it_had_and_can_be_removed(user: EdgeUser) -> None:
    (port,) = free_ports(1)
    mapped = configured(user, {8081: port})
    user.ok(*CREATE, *mapped)
    assert user.refused(*CREATE, *mapped) == (
        "there is an edge florin already, and it is ready; `farflung edge delete florin` removes it"
    )
    assert "edge florin is running already" in user.edge("start", "florin").stderr
    assert "edge florin is running already" in user.edge("run", "florin").stderr
    (before,) = user.listed()
    user.kubectl("apply", "-f", "-", stdin=WORKLOAD)
    assert "This is a common web site." in fetched(port)

    os.kill(pid_of(user), signal.SIGKILL)
    eventually(lambda: not user.processes(), "the end of its pods")
    assert user.listed()[0]["status"] == "Stopped"
    user.ok("start", "florin")
    assert user.listed()[0]["api"] == before["api"]
    assert "This is a common web site." in fetched(port)

    os.kill(pid_of(user), signal.SIGKILL)
    user.ok("delete", "florin")
    user.has_nothing()


def pid_of(user: EdgeUser) -> int:
    return Registry(user.home / ".farflung").existing("florin").phase.pid


def test_a_kubeconfig_can_be_elsewhere_or_nowhere(user: EdgeUser) -> None:
    user.ok(*CREATE, "--no-kubeconfig")
    assert user.config() == {}
    printed = user.home / "printed"
    printed.write_text(user.ok("kubeconfig", "florin"))
    assert "default" in user.kubectl("--kubeconfig", str(printed), "--context", "kind-florin", "get", "ns")

    user.ok("kubeconfig", "florin", "--merge", "--context-name", "mine")
    assert user.kubectl("config", "current-context") == "mine\n"
    assert "default" in user.kubectl("get", "ns")

    user.ok("delete", "florin")
    user.has_nothing()


def test_the_workload_of_the_seeds_runs_answers_and_ends(user: EdgeUser) -> None:
    (port,) = free_ports(1)
    user.ok(*CREATE, *configured(user, {8081: port}))
    user.kubectl("config", "set-context", "kind-florin", "--namespace", "commonstuff")

    user.kubectl("apply", "-f", "-", stdin=WORKLOAD)
    assert "successfully rolled out" in user.kubectl("rollout", "status", "deployment/commond", "--timeout=60s")
    assert "This is a common web site." in fetched(port)

    deployment = ("get", "deployment", "commond", "-o", "jsonpath={.status.availableReplicas}")
    assert user.kubectl(*deployment) == "1"
    pod = user.kubectl("get", "pods", "-o", "name").strip()
    assert "GET /" in user.kubectl("logs", pod)
    following = user.begin_kubectl("logs", "-f", pod)
    try:
        assert following.stdout is not None
        assert any("GET / " in line for line in following.stdout), "what is there is shown"
        with contextlib.suppress(OSError):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/news", timeout=10)
        assert any("GET /news " in line for line in following.stdout), "what comes is shown as it comes"
        user.kubectl("scale", "deployment/commond", "--replicas=0")
        assert following.wait(60) == 0, "a log ends with its container"
    finally:
        following.kill()
        following.communicate()
    user.kubectl("wait", "--for=delete", pod, "--timeout=60s")

    user.kubectl("scale", "deployment/commond", "--replicas=1")
    assert "This is a common web site." in fetched(port)
    drained = user.kubectl("drain", "florin-control-plane", "--timeout=60s")
    assert "evicting pod commonstuff/commond-" in drained
    user.kubectl("delete", "deployment", "commond", "--wait", "--cascade=foreground")
    eventually(lambda: user.kubectl("get", "pods", "-o", "name") == "", "the end of the pods")

    user.ok("delete", "florin")
    user.has_nothing()
