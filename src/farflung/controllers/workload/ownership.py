"""Who controls whom: the reference in a child, and children that are to be adopted or let go.  Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from farflung.client.resource import Collection
from farflung.controllers.workload.pods import is_terminating, labels
from farflung.controllers.workload.steps import Step, update
from farflung.machinery.errors import Obj
from farflung.machinery.selectors import LabelSelector, selector_of


def controller_of(obj: Obj) -> Obj | None:
    """The reference to whoever controls it."""
    for reference in obj["metadata"].get("ownerReferences") or ():
        if reference.get("controller"):
            return reference  # type: ignore[no-any-return]
    return None


def reference_to(owner: Obj, collection: Collection) -> Obj:
    return {
        "apiVersion": collection.api_version,
        "kind": collection.kind,
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def selector(owner: Obj) -> LabelSelector:
    return selector_of(owner["spec"].get("selector") or {})


@dataclass(frozen=True, slots=True)
class Claimed:
    """What is an owner's, and the writes that make it so."""

    owned: tuple[Obj, ...]
    steps: tuple[Step, ...]


def claim(
    owner: Obj,
    collection: Collection,
    children: Collection,
    candidates: Iterable[Obj],
    belongs: Callable[[Obj], bool] = lambda child: True,
) -> Claimed:
    """`candidates`: what the owner controls, and orphans of its namespace.  Those that its selector does not select are
    let go; orphans that it selects are adopted, unless somebody is going."""
    wanted, uid = selector(owner), owner["metadata"]["uid"]
    owned: list[Obj] = []
    steps: list[Step] = []
    for child in candidates:
        reference, selected = controller_of(child), wanted.matches(labels(child)) and belongs(child)
        if reference is not None and reference.get("uid") != uid:
            continue
        if reference is not None and (selected or is_terminating(owner)):
            owned.append(child)
        elif reference is not None:
            steps.append(Step(update(children, _released(child, uid))))
        elif selected and not is_terminating(owner) and not is_terminating(child):
            steps.append(Step(update(children, _adopted(child, reference_to(owner, collection)))))
    return Claimed(tuple(owned), tuple(steps))


def _released(child: Obj, uid: str) -> Obj:
    metadata = dict(child["metadata"])
    left = [one for one in metadata.pop("ownerReferences") if one.get("uid") != uid]
    return {**child, "metadata": {**metadata, "ownerReferences": left} if left else metadata}


def _adopted(child: Obj, reference: Obj) -> Obj:
    others = child["metadata"].get("ownerReferences") or ()
    references = [*(one for one in others if one.get("uid") != reference["uid"]), reference]
    return {**child, "metadata": {**child["metadata"], "ownerReferences": references}}
