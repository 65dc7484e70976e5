"""Embedded edges as users make them: real processes, real kubectl, real ports."""

from __future__ import annotations

import contextlib
import os
import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from edge_runner import EdgeUser, kind_config, names
from free_ports import free_ports
from hub_process import eventually

from farflung.edge.registry import EdgeRegistry

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
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=60) as answer:
                page = answer.read().decode()
        except OSError:
            return False
        return True

    eventually(answers, f"an answer of port {port}")
    return page


def test_two_edges_at_once_are_made_listed_and_removed(user: EdgeUser) -> None:
    florin_port, guilder_port = free_ports(2)
    florins, guilders = configured(user, {8081: florin_port}), configured(user, {8081: guilder_port})
    makers = [
        user.begin(*CREATE, *florins),
        user.begin("create", "guilder", "--runtime", "process", "--no-kubeconfig", *guilders),
    ]
    assert [maker.wait() for maker in makers] == [0, 0], user.log()
    assert user.refused(*CREATE, *florins) == (
        "edge florin already exists, and it is ready; `farflung edge delete florin` deletes it"
    )
    assert "edge florin is already running" in user.edge("start", "florin").stderr
    assert "edge florin is already running" in user.edge("run", "florin").stderr

    florin, guilder = user.listed()
    assert (florin["name"], florin["status"], florin["pods"]) == ("florin", "Ready", {"running": 0, "all": 0})
    assert guilder["ports"] == [{"containerPort": 8081, "hostPort": guilder_port, "listenAddress": "127.0.0.1"}]
    table = user.ok("list").splitlines()
    assert table[0].split() == ["NAME", "STATUS", "API", "RUNTIME", "PORTS", "PODS", "AGE"]
    assert f"127.0.0.1:{florin_port}->8081/tcp" in table[1]

    assert names(user.config()["contexts"]) == ["kind-florin"]
    assert "default" in user.kubectl("get", "--context", "kind-florin", "ns")
    assert "florin-control-plane" in user.kubectl("get", "--context", "kind-florin", "nodes")
    printed = user.home / "printed"
    printed.write_text(user.ok("kubeconfig", "guilder"))
    assert "default" in user.kubectl("--kubeconfig", str(printed), "--context", "kind-guilder", "get", "ns")
    user.ok("kubeconfig", "guilder", "--merge", "--context-name", "mine")
    assert user.kubectl("config", "current-context") == "mine\n"
    assert "guilder-control-plane" in user.kubectl("get", "nodes")

    assert user.ok("delete", "florin") == "edge florin deleted\n"
    assert names(user.config()["contexts"]) == ["mine"]
    assert [one["name"] for one in user.listed()] == ["guilder"]
    user.ok("delete", "--all")
    user.has_nothing()


def test_a_user_that_does_not_wait_has_nothing(user: EdgeUser) -> None:
    assert user.refused(*CREATE, "--wait", "0.2").startswith("edge florin was not ready within 0.2 seconds")
    user.has_nothing()


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGTERM,
        pytest.param(signal.SIGINT, marks=pytest.mark.long),
        pytest.param(signal.SIGHUP, marks=pytest.mark.long),
    ],
)
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


def pid_of(user: EdgeUser) -> int:
    return EdgeRegistry(user.home / ".farflung").existing("florin").phase.pid


def test_a_workload_runs_answers_ends_and_outlives_a_killed_edge(user: EdgeUser) -> None:
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
            urllib.request.urlopen(f"http://127.0.0.1:{port}/news", timeout=60)
        assert any("GET /news " in line for line in following.stdout), "what comes is shown as it comes"
        user.kubectl("scale", "deployment/commond", "--replicas=0")
        assert following.wait(60) == 0, "a log ends with its container"
    finally:
        following.kill()
        following.communicate()
    user.kubectl("wait", "--for=delete", pod, "--timeout=60s")

    user.kubectl("scale", "deployment/commond", "--replicas=1")
    assert "This is a common web site." in fetched(port)
    (before,) = user.listed()
    os.kill(pid_of(user), signal.SIGKILL)
    eventually(lambda: not user.processes(), "the end of its pods")
    assert user.listed()[0]["status"] == "Stopped"
    user.ok("start", "florin")
    assert user.listed()[0]["api"] == before["api"]
    assert "This is a common web site." in fetched(port)

    drained = user.kubectl("drain", "florin-control-plane", "--timeout=60s")
    assert "evicting pod commonstuff/commond-" in drained
    user.kubectl("delete", "deployment", "commond", "--wait", "--cascade=foreground")
    eventually(lambda: user.kubectl("get", "pods", "-o", "name") == "", "the end of the pods")

    os.kill(pid_of(user), signal.SIGKILL)
    user.ok("delete", "florin")
    user.has_nothing()
