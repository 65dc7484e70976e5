"""The walk that users of the global scheduler know, as printed: a virtual machine gets its cluster.

The scheduler is started in workspaces, by the script of that name with the files that it had then, or it comes with the
hub.  `test_seed_documents.py` types the document.
"""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import orjson
import pytest
from executable import ROOT, Directory
from hub_process import PATIENCE, HubProcess
from kubectl_runner import kubectls
from seed_machine import MACHINE
from seed_session import Session

AT_HOME = r"""
$ kubectl ws root
Current workspace is "root".
$ kubectl ws create machines --enter
Workspace "machines" (type root:organization) created. Waiting for it to be ready...
Workspace "machines" (type root:organization) is ready to use.
Current workspace is "root:machines" (type root:organization).
$ kubectl kcp bind apiexport root:compute:kubernetes
apibinding kubernetes created. Waiting to successfully bind ...
kubernetes created and bound.
$ kubectl kcp bind apiexport root:compute:globalscheduler.com
apibinding globalscheduler.com created. Waiting to successfully bind ...
globalscheduler.com created and bound.
"""
SCHEDULER = """\
$ hack/gs-scheduler-up.sh --kubeconfig $HUB_KUBECONFIG --context base
...
I1128 10:53:00.261128   29786 controller.go:201] "starting controller" controller="global-scheduler"
"""
CREATED = """\
$ kubectl apply -f vm.yaml
pod/demovm created
"""


def waited(session: Session, name: str, status: str = "True") -> None:
    """Until the scheduler has said something; kubectl watches, which costs less than to ask all the time."""
    session.run(f"kubectl wait pod/{name} --for=condition=PodScheduled={status} --timeout={PATIENCE:.0f}s")


def described(session: Session) -> str:
    """What `kubectl describe` prints, once the Pod has a cluster."""
    waited(session, "demovm")
    return session.run("kubectl describe pods demovm")


def check_description(said: str) -> None:
    """As the walk prints it."""
    assert re.search(r"^Name: +demovm$", said, re.MULTILINE)
    assert re.search(r"^Namespace: +default$", said, re.MULTILINE)
    assert re.search(r"^Node: +az1/$", said, re.MULTILINE)
    assert re.search(r"^Labels: +<none>$", said, re.MULTILINE)
    assert re.search(r"^Status: +Pending$", said, re.MULTILINE)
    assert re.search(r"^IP: *$", said, re.MULTILINE)
    assert re.search(r"^Containers: +<none>$", said, re.MULTILINE)
    assert re.search(r"^Conditions:\n +Type +Status\n +PodScheduled +True *$", said, re.MULTILINE)
    assert re.search(r"^Volumes: +<none>\nQoS Class: +BestEffort\nNode-Selectors: +<none>$", said, re.MULTILINE)
    assert re.search(r"globalscheduler.com/flavor-id: +c6.large.2$", said, re.MULTILINE)
    assert re.search(r"globalscheduler.com/site-id: +region1--az1$", said, re.MULTILINE)


def test_a_machine_is_bound_by_a_scheduler_with_the_files_of_its_time(start: Callable[..., Session]) -> None:
    session = start()
    for name in ("conf", "hack"):
        (session.path / name).symlink_to(ROOT / name)
    (session.path / "vm.yaml").write_text(MACHINE)
    session.type(AT_HOME)
    kubeconfig = session.home / ".farflung" / "admin.kubeconfig"
    session.export(HUB_KUBECONFIG=str(kubeconfig), CONFIG_BASE=str(session.path / "conf"))
    session.type(SCHEDULER)
    session.type(CREATED)
    check_description(described(session))
    explained = session.run("farflung explain pod demovm")
    assert "placed on az1 with c6.large.2" in explained
    assert re.search(r"^az2 +region2 +az2 +0 +- +no +wrong region$", explained, re.MULTILINE)
    (session.path / "other.yaml").write_text(MACHINE.replace("demovm", "other").replace("region1", "region9"))
    session.run("kubectl apply -f other.yaml")
    waited(session, "other", "False")
    rename_regions(session.path / "conf", region2="region9")
    session.terminals[0].process.send_signal(signal.SIGHUP)
    waited(session, "other")
    assert "placed on az" in session.run("farflung explain pod other")


def rename_regions(conf: Path, **names: str) -> None:
    """In all files at once, as a ConfigMap that is mounted changes."""
    changed = conf.with_name("changed")
    shutil.copytree(conf, changed)
    for file in changed.iterdir():
        text = file.read_text()
        for old, new in names.items():
            text = text.replace(old, new)
        file.write_text(text)
    link = conf.with_name("link")
    link.symlink_to(changed.name)
    link.replace(conf)


# --- with Clusters of the API ---------------------------------------------------------------------

CLUSTER = """\
apiVersion: globalscheduler.com/v1
kind: Cluster
metadata:
  name: az1
spec:
  region: {region: region1, availabilityzone: az1}
  flavors: [{flavorid: c6.large.2, totalcapacity: 1}]
  eipcapacity: 3
"""
FULL = "0/1 clusters fit: 1 out of c6.large.2"


@pytest.fixture
def kubectl() -> Path:
    found = kubectls()
    if not found:
        pytest.fail("there is no kubectl on the PATH: `make setup` installs it", pytrace=False)
    return found[-1]


class Walk:
    """A session at a hub with one Cluster that has room for one machine."""

    def __init__(self, directory: Path, kubectl: Path, *arguments: str) -> None:
        self.directory = directory
        self.arguments = arguments
        self.hub = HubProcess(directory / ".farflung", command="start", arguments=arguments)
        self.place = Directory(directory)
        self.session = Session(self.place, kubectl, self.hub)
        self.schedulers: list[subprocess.Popen[bytes]] = []
        (self.place.path / "vm.yaml").write_text(MACHINE)
        (self.place.path / "other.yaml").write_text(MACHINE.replace("demovm", "other"))
        (self.place.path / "cluster.yaml").write_text(CLUSTER)
        self.session.type(AT_HOME)
        self.session.run("kubectl apply -f cluster.yaml")

    def crash(self) -> None:
        """The hub, and its controllers with it; and start it again where it was."""
        port = self.hub.port
        self.hub.kill()
        self.hub = HubProcess(self.directory / ".farflung", port=port, command="start", arguments=self.arguments)
        self.session.run("kubectl ws root:machines")  # a hub that starts writes its kubeconfig anew

    def schedule(self) -> subprocess.Popen[bytes]:
        """By hand, in a process of its own."""
        words = f"farflung global-scheduler --kubeconfig {self.hub.kubeconfig} --context base --identity-file scheduler"
        log = self.directory / f"scheduler-{len(self.schedulers)}.log"
        self.schedulers.append(self.place.start(words, log))
        return self.schedulers[-1]

    def end(self) -> None:
        for process in self.schedulers:
            process.kill()
            process.wait()
        self.hub.kill()

    # --- looking ----------------------------------------------------------------------------------

    def pod(self, name: str) -> tuple[str, str]:
        """(the cluster that it is bound to, why it is bound to none)"""
        found = orjson.loads(self.session.run(f"kubectl get pod {name} -o json"))
        conditions = {one["type"]: one for one in (found.get("status") or {}).get("conditions") or ()}
        return found["spec"].get("nodeName", ""), conditions.get("PodScheduled", {}).get("message", "")

    def check(self, name: str, cluster: str, why: str = "") -> None:
        waited(self.session, name, "True" if cluster else "False")
        assert self.pod(name) == (cluster, why)


@pytest.fixture
def walk(tmp_path: Path, kubectl: Path, request: pytest.FixtureRequest) -> Iterator[Walk]:
    walk = Walk(tmp_path, kubectl, *getattr(request, "param", ()))
    try:
        yield walk
    finally:
        walk.end()


@pytest.mark.long
def test_what_is_deleted_makes_room_also_when_everything_was_killed_in_between(walk: Walk) -> None:
    session = walk.session
    session.type(CREATED)
    check_description(described(session))
    session.run("kubectl apply -f other.yaml")
    walk.check("other", "", FULL)
    assert "FailedScheduling" in session.run("kubectl describe pods other")
    walk.crash()
    session.run("kubectl delete pod demovm")
    walk.check("other", "az1")
    assert session.run("farflung plan -f vm.yaml") == f"Pod default/demovm (new)\nnot placed: {FULL}\n"


@pytest.mark.long
@pytest.mark.parametrize("walk", [["--no-controllers"]], indirect=True, ids=["by hand"])
def test_a_scheduler_that_was_killed_knows_what_is_bound_when_it_comes_back(walk: Walk) -> None:
    session = walk.session
    first = walk.schedule()
    session.type(CREATED)
    check_description(described(session))
    first.send_signal(signal.SIGKILL)
    first.wait()
    session.run("kubectl apply -f other.yaml")
    waiting = session.run("farflung explain pod other")
    assert waiting.endswith(f"not placed: {FULL}\nnow: not bound; the global scheduler is behind or not running\n")
    lease = "kubectl get lease global-scheduler -n default -o json"
    session.run("kubectl ws root:compute")
    before = orjson.loads(session.run(lease))["spec"]
    session.run("kubectl ws root:machines")
    walk.schedule()
    walk.check("other", "", FULL)
    assert session.run("farflung explain pod other").endswith("; up to date\n")
    session.run("kubectl ws root:compute")
    after = orjson.loads(session.run(lease))["spec"]
    assert (after["holderIdentity"], after["acquireTime"]) == (before["holderIdentity"], before["acquireTime"])
    session.run("kubectl ws root:machines")
    assert walk.pod("demovm") == ("az1", "")
