"""Controllers that are killed, and hubs that are killed under them, in the middle of the work: all of it is done in the
end, once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from executable import ROOT
from hub_process import FARFLUNG, PATIENCE, Client, HubProcess, Json, eventually

COUNT = 6  #: of SyncTargets, each with a Location, and of placements, each to all Locations after its own
TENANCY = "/clusters/{}/apis/tenancy.kcp.io/v1alpha1/workspaces"
BINDINGS = "/clusters/{}/apis/apis.kcp.io/v1alpha1/apibindings"
SYNC_TARGETS = "/clusters/root:compute/apis/workload.kcp.io/v1alpha1/synctargets"
LOCATIONS = "/clusters/root:compute/apis/scheduling.kcp.io/v1alpha1/locations"
EDGE = "/clusters/{}/apis/edge.kcp.io/v1alpha1/{}"
LEASES = "/clusters/root:compute/apis/coordination.k8s.io/v1/namespaces/default/leases"
LEASE = "global-scheduler"
WORK = "root:work"


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., HubProcess]]:
    """Starts the hub, again in the same place if there was one."""
    hubs: list[HubProcess] = []

    def one(*arguments: str) -> HubProcess:
        port = hubs[-1].port if hubs else 0
        hubs.append(HubProcess(tmp_path / "hub", command="start", port=port, arguments=arguments))
        return hubs[-1]

    yield one
    for hub in hubs:
        hub.kill()


def furnish(client: Client) -> None:
    """A workspace for placements."""
    create(client, TENANCY.format("root"), "Workspace", "work", {})
    reference = {"export": {"path": "root:espw", "name": "edge.kcp.io"}}
    create(client, BINDINGS.format(WORK), "APIBinding", "edge", {"reference": reference})


def create(client: Client, path: str, kind: str, name: str, spec: Json, **labels: str) -> None:
    version = "/".join(path.split("/")[-3:-1])
    client.create(
        path, {"apiVersion": version, "kind": kind, "metadata": {"name": name, "labels": labels}, "spec": spec}
    )


def place(client: Client, first: int, last: int) -> None:
    resource = {"group": "workload.kcp.io", "version": "v1alpha1", "resource": "synctargets"}
    for number in range(first, last):
        label = {"number": str(number)}
        create(client, SYNC_TARGETS, "SyncTarget", f"target-{number}", {}, **label)
        spec: Json = {"resource": resource, "instanceSelector": {"matchLabels": label}}
        create(client, LOCATIONS, "Location", f"location-{number}", spec, **label)
        later = {"key": "number", "operator": "In", "values": [str(one) for one in range(number, COUNT)]}
        spec = {"locationSelectors": [{"matchExpressions": [later]}]}
        create(client, EDGE.format(WORK, "edgeplacements"), "EdgePlacement", f"placement-{number}", spec)


def listed(client: Client, path: str) -> dict[str, Json]:
    return {item["metadata"]["name"]: item for item in client.get(path)["items"]}


def resolved(client: Client) -> bool:
    expected = {
        f"placement-{number}": [(f"location-{one}", f"target-{one}") for one in range(number, COUNT)]
        for number in range(COUNT)
    }
    slices = listed(client, EDGE.format(WORK, "singleplacementslices"))
    return slices.keys() == expected.keys() and all(
        sorted(expected[name]) == [(one["locationName"], one["syncTargetName"]) for one in found["destinations"]]
        for name, found in slices.items()
    )


def delivered(client: Client) -> bool:
    """Each SyncTarget has its mailbox, bound and with a SyncerConfig, and there are no others."""
    mailboxes = listed(client, TENANCY.format("root:espw"))
    expected = {
        f"{one['metadata']['annotations']['kcp.io/cluster']}-mb-{one['metadata']['uid']}"
        for one in listed(client, SYNC_TARGETS).values()
    }
    return mailboxes.keys() == expected and all(
        bound(client, one) and "the-one" in listed(client, EDGE.format(one["spec"]["cluster"], "syncerconfigs"))
        for one in mailboxes.values()
    )


def bound(client: Client, mailbox: Json) -> bool:
    bindings = listed(client, BINDINGS.format(mailbox["spec"]["cluster"])) if "cluster" in mailbox["spec"] else {}
    return "bind-edge" in bindings and bindings["bind-edge"].get("status", {}).get("phase") == "Bound"


def done(client: Client) -> bool:
    return resolved(client) and delivered(client)


def begun(client: Client) -> bool:
    return bool(listed(client, TENANCY.format("root:espw")))


def controllers_of(hub: HubProcess) -> list[int]:
    pid = hub.process.pid
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_controllers_that_are_killed_in_the_middle_finish_although_their_files_are_wrong_by_then(
    run: Callable[..., HubProcess], tmp_path: Path
) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("predicates: [{name: Flavor}]")
    hub = run("--policy-file", str(policy))

    def lease_notes() -> Json:
        """What the lease of the global scheduler says about its files."""
        lease = listed(client, LEASES).get(LEASE, {"metadata": {}})
        text = lease["metadata"].get("annotations", {}).get("globalscheduler.com/files", "{}")
        return dict(json.loads(text))

    with hub.client() as client:
        furnish(client)
        place(client, 0, COUNT // 2)
        eventually(lambda: begun(client), "a mailbox")
        eventually(lambda: lease_notes().get("options") == ["--policy-file", str(policy)], "the file in the lease")
        before = listed(client, LEASES)[LEASE]["spec"]
        (controllers,) = controllers_of(hub)
        policy.write_text("predicates: [{name: Luck}]")
        os.kill(controllers, signal.SIGKILL)
        place(client, COUNT // 2, COUNT)
        eventually(lambda: done(client), "the rest of the work")
        assert controllers not in controllers_of(hub)
        eventually(lambda: "Luck" in lease_notes().get("problem", ""), "what is wrong")
        eventually(lambda: listed(client, LEASES)[LEASE]["spec"]["renewTime"] > before["renewTime"], "a renewal")
        after = listed(client, LEASES)[LEASE]["spec"]
        assert after == before | {"renewTime": after["renewTime"]}  # the new process did not wait for the old lease
        ended = subprocess.run(
            [FARFLUNG, "status", "--kubeconfig", hub.kubeconfig, "--context", "base", "--check"],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert ended.returncode == 1
        assert f"{policy}: unknown plugin 'Luck'" in ended.stdout
        policy.write_text("predicates: [{name: Volume}]")
        eventually(lambda: "problem" not in lease_notes(), "files that are right again")
    assert hub.stop() == "farflung hub is stopping\n"
    assert "farflung controllers ended with exit code -9; restarting in" in hub.trouble()[0]
    assert "the files are invalid; the last valid configuration stays" in hub.log()


def test_a_hub_that_is_killed_in_the_middle_comes_back_with_its_controllers(run: Callable[..., HubProcess]) -> None:
    hub = run()
    with hub.client() as client:
        furnish(client)
        place(client, 0, COUNT // 2)
        eventually(lambda: begun(client), "a mailbox")
    (controllers,) = controllers_of(hub)
    hub.kill()
    eventually(lambda: is_gone(controllers), "the end of controllers without a hub")
    hub = run()
    with hub.client() as client:
        place(client, COUNT // 2, COUNT)
        eventually(lambda: done(client), "the rest of the work")
    assert hub.stop() == "farflung hub is stopping\n"
    assert hub.trouble() == []


@pytest.mark.long
def test_controllers_of_their_own_outlive_hubs(run: Callable[..., HubProcess], tmp_path: Path) -> None:
    """They are started before there is anything to control, and see two hubs end."""
    hub = run("--no-controllers")
    options = ["--kubeconfig", str(hub.kubeconfig), "--context", "base", "--provider-path", "root:espw"]
    log = tmp_path / "controllers.log"
    with log.open("wb") as output:
        process = subprocess.Popen([FARFLUNG, "controllers", *options], stderr=output)
    try:
        for begins in (0, COUNT // 3, 2 * COUNT // 3):
            with hub.client() as client:
                if not begins:
                    furnish(client)
                place(client, begins, begins + COUNT // 3)
            if begins + COUNT // 3 < COUNT:
                hub.kill()
                hub = run("--no-controllers")
        with hub.client() as client:
            eventually(lambda: done(client), "all of the work")
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=PATIENCE) == 0
    finally:
        process.kill()
        process.wait()
    said = log.read_text()
    assert "Traceback" not in said
    assert said.count('"starting controller"') == said.count('"shutting down controller"') > 0


@pytest.mark.long
def test_controllers_go_on_with_a_provider_that_is_made_anew(run: Callable[..., HubProcess]) -> None:
    hub = run()
    with hub.client() as client:
        eventually(lambda: LEASE in listed(client, LEASES), "controllers at work")
        assert client.request("DELETE", f"{TENANCY.format('root')}/espw").status == 200
        eventually(lambda: "espw" not in listed(client, TENANCY.format("root")), "the end of the provider")
        eventually(lambda: "the view of an APIExport has changed or was deleted" in hub.log(), "a log line about it")
        create(client, TENANCY.format("root"), "Workspace", "espw", {})
        for file in sorted((ROOT / "config" / "exports").iterdir(), reverse=True):
            exported = yaml.safe_load(file.read_text())
            client.create(f"/clusters/root:espw/apis/apis.kcp.io/v1alpha1/{exported['kind'].lower()}s", exported)
        furnish(client)
        place(client, 0, COUNT)
        eventually(lambda: done(client), "all of the work")
    assert "Traceback" not in hub.log()
