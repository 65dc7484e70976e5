from __future__ import annotations

import msgspec
import pytest

from farflung.controllers.mailbox.decide import MailboxStep, decide_binding, decide_workspace, mailbox_objects
from farflung.placement.names import cluster_of, is_mailbox_name, mailbox_name
from farflung.placement.types import ApiBinding, SyncTarget, Workspace

UID = "31e5fa4d-a84e-4397-a523-63fa62d16dad"
NAME = f"2rp1gztc6m5b8b7r-mb-{UID}"
ALIVE = msgspec.convert({"metadata": {"name": "florin", "uid": UID}}, SyncTarget)
DYING = msgspec.convert({"metadata": {"name": "florin", "deletionTimestamp": "2023-04-18T00:06:34Z"}}, SyncTarget)


def workspace(target: str = "florin", phase: str = "Ready", cluster: str = "c", **metadata: str) -> Workspace:
    annotations = {"edge.kcp.io/sync-target-name": target} if target else {}
    said = {
        "metadata": {"name": NAME, "annotations": annotations, **metadata},
        "spec": {"cluster": cluster},
        "status": {"phase": phase},
    }
    return msgspec.convert(said, Workspace)


GOING = {"deletionTimestamp": "2023-04-18T00:06:34Z"}


def test_a_mailbox_is_named_after_the_cluster_and_the_uid_of_its_target() -> None:
    assert mailbox_name("2rp1gztc6m5b8b7r", UID) == NAME
    assert is_mailbox_name(NAME)
    assert cluster_of(NAME) == "2rp1gztc6m5b8b7r"


@pytest.mark.parametrize("name", ["", "shop", "a-mb-b", f"-mb-{UID}", f"a-mb-{UID}-mb-{UID}x", f"a-mb-{UID.upper()}"])
def test_other_names_are_no_mailboxes(name: str) -> None:
    assert not is_mailbox_name(name)
    assert cluster_of(name) == ""


@pytest.mark.parametrize(
    ("target", "there", "step"),
    [
        (None, None, MailboxStep.NOTHING),
        (None, workspace(**GOING), MailboxStep.NOTHING),
        (None, workspace(), MailboxStep.DELETE),
        (DYING, workspace(), MailboxStep.DELETE),
        (DYING, None, MailboxStep.NOTHING),
        (ALIVE, None, MailboxStep.CREATE),
        (ALIVE, workspace(**GOING), MailboxStep.WAIT),
        (ALIVE, workspace(phase="Scheduling"), MailboxStep.WAIT),
        (ALIVE, workspace(cluster=""), MailboxStep.WAIT),
        (ALIVE, workspace(), MailboxStep.NOTHING),
        (ALIVE, workspace(target="guilder"), MailboxStep.MARK),
        (ALIVE, workspace(target=""), MailboxStep.MARK),
        (None, workspace(target=""), MailboxStep.LEAVE),
    ],
)
def test_what_is_done_follows_from_the_target_and_the_workspace(
    target: SyncTarget | None, there: Workspace | None, step: MailboxStep
) -> None:
    assert decide_workspace(target, there) is step


def binding(path: str = "root:espw", name: str = "edge.kcp.io", phase: str = "Bound", **metadata: str) -> ApiBinding:
    said = {
        "metadata": {"name": "bind-edge", **metadata},
        "spec": {"reference": {"export": {"path": path, "name": name}}},
        "status": {"phase": phase},
    }
    return msgspec.convert(said, ApiBinding)


@pytest.mark.parametrize(
    ("there", "step"),
    [
        (None, MailboxStep.CREATE),
        (binding(), MailboxStep.NOTHING),
        (binding(phase="Binding"), MailboxStep.WAIT),
        (binding(path="root:other"), MailboxStep.DELETE),
        (binding(name="other"), MailboxStep.DELETE),
        (binding(path="root:other", **GOING), MailboxStep.WAIT),
        (msgspec.convert({"metadata": {"name": "bind-edge"}, "spec": None}, ApiBinding), MailboxStep.DELETE),
    ],
)
def test_a_binding_of_something_else_is_replaced(there: ApiBinding | None, step: MailboxStep) -> None:
    assert decide_binding(there, "root:espw") is step


def test_a_mailbox_is_marked_bound_and_has_an_empty_configuration() -> None:
    objects = mailbox_objects(NAME, "florin", "root:edge")
    assert objects.workspace["metadata"] == {
        "name": NAME,
        "annotations": {"edge.kcp.io/sync-target-name": "florin"},
    }
    assert objects.binding["spec"] == {"reference": {"export": {"path": "root:edge", "name": "edge.kcp.io"}}}
    assert (objects.config["metadata"]["name"], objects.config["spec"]) == ("the-one", {})
