"""Copies are digested in fair turns of their workspaces."""

from __future__ import annotations

from farflung.controllers.status_summarizer.controller import CopyQueue
from farflung.placement.index import CopyKey
from farflung.placement.names import GroupResource, ObjectRef

MAPS = GroupResource("", "configmaps")


def copy(workspace: str, number: int) -> CopyKey:
    return CopyKey("mailbox", ObjectRef(MAPS, workspace, str(number)))


def test_a_copy_of_another_workspace_waits_for_one_copy_with_expensive_queries() -> None:
    """The attack: thousands of copies with sixteen expensive StatusCollectors each."""
    queue = CopyQueue(lambda copy: copy.ref.namespace)
    for number in range(1000):
        queue.add(copy("expensive", number))
        queue.add(copy("expensive", 0))
    queue.add(copy("cheap", 0))
    queue.add(copy("cheap", 1))
    assert len(queue) == 1002
    order = []
    while queue:
        one = queue.pop()
        queue.charge(one, 0.08 if one.ref.namespace == "expensive" else 0.001)
        order.append(one)
    assert [one.ref.namespace for one in order[:4]] == ["expensive", "cheap", "cheap", "expensive"]
    assert sorted(int(one.ref.name) for one in order if one.ref.namespace == "expensive") == list(range(1000))
