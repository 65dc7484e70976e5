"""Owner references: indexes of owners and children, adoption and release.  Pure.

The indexes use uids, not keys made of names: an informer's key depends on annotations that any client may write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from farflung.apis.names import Collection
from farflung.controllers.workload.model.objects import is_terminating, labels
from farflung.controllers.workload.model.steps import WriteStep, update
from farflung.machinery.errors import Obj
from farflung.machinery.selectors import LabelSelector, selector_of
from farflung.runtime.cache import CacheChange, Key


def controller_reference(obj: Obj) -> Obj | None:
    for reference in obj["metadata"].get("ownerReferences") or ():
        if reference.get("controller"):
            return reference  # type: ignore[no-any-return]
    return None


def owner_reference(owner: Obj, collection: Collection) -> Obj:
    return {
        "apiVersion": collection.api_version,
        "kind": collection.kind,
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def selector_of_owner(owner: Obj) -> LabelSelector:
    return selector_of(owner["spec"].get("selector") or {})


@dataclass(frozen=True, slots=True)
class ClaimedChildren:
    """The children of an owner, and the steps that adopt or release others."""

    owned: tuple[Obj, ...]
    steps: tuple[WriteStep, ...]


def claim_children(
    owner: Obj,
    collection: Collection,
    children: Collection,
    candidates: Iterable[Obj],
    belongs: Callable[[Obj], bool] = lambda child: True,
) -> ClaimedChildren:
    """`candidates`: the owner's children and the orphans of its namespace.  Children that do not match the selector are
    released.  Matching orphans are adopted, unless either object is terminating."""
    wanted, uid = selector_of_owner(owner), owner["metadata"]["uid"]
    owned: list[Obj] = []
    steps: list[WriteStep] = []
    for child in candidates:
        reference, selected = controller_reference(child), wanted.matches(labels(child)) and belongs(child)
        if reference is not None and reference.get("uid") != uid:
            continue
        if reference is not None and (selected or is_terminating(owner)):
            owned.append(child)
        elif reference is not None:
            steps.append(WriteStep(update(children, _without_owner(child, uid))))
        elif selected and not is_terminating(owner) and not is_terminating(child):
            steps.append(WriteStep(update(children, _with_owner(child, owner_reference(owner, collection)))))
    return ClaimedChildren(tuple(owned), tuple(steps))


def _without_owner(child: Obj, uid: str) -> Obj:
    metadata = dict(child["metadata"])
    left = [one for one in metadata.pop("ownerReferences") if one.get("uid") != uid]
    return {**child, "metadata": {**metadata, "ownerReferences": left} if left else metadata}


def _with_owner(child: Obj, reference: Obj) -> Obj:
    others = child["metadata"].get("ownerReferences") or ()
    references = [*(one for one in others if one.get("uid") != reference["uid"]), reference]
    return {**child, "metadata": {**child["metadata"], "ownerReferences": references}}


class ChildIndex:
    """Children of one kind by their controller's uid, and orphans by namespace."""

    def __init__(self) -> None:
        self._of: dict[str, dict[Key, None]] = {}
        self._orphans: dict[str, dict[Key, None]] = {}

    def on_change(self, change: CacheChange[Obj]) -> None:
        if change.old is not None:
            index, name = self._bucket(change.old)
            keys = index.get(name, {})
            keys.pop(change.key, None)
            if not keys:
                index.pop(name, None)
        if change.new is not None:
            index, name = self._bucket(change.new)
            index.setdefault(name, {})[change.key] = None

    def keys_of(self, uid: str) -> list[Key]:
        return sorted(self._of.get(uid, ()))

    def orphans(self, namespace: str) -> list[Key]:
        return sorted(self._orphans.get(namespace, ()))

    def _bucket(self, obj: Obj) -> tuple[dict[str, dict[Key, None]], str]:
        reference = controller_reference(obj)
        if reference is None:
            return self._orphans, obj["metadata"].get("namespace", "")
        return self._of, reference.get("uid", "")


class OwnerIndex:
    """Owners of one kind by uid and namespace."""

    def __init__(self, find: Callable[[Key], Obj | None]) -> None:
        self._find = find
        self._keys: dict[str, Key] = {}
        self._in: dict[str, dict[Key, None]] = {}

    def on_change(self, change: CacheChange[Obj]) -> None:
        if change.old is not None:
            self._keys.pop(change.old["metadata"]["uid"], None)
            self._in.get(change.key.namespace, {}).pop(change.key, None)
        if change.new is not None:
            self._keys[change.new["metadata"]["uid"]] = change.key
            self._in.setdefault(change.key.namespace, {})[change.key] = None

    def key(self, uid: str) -> Key | None:
        return self._keys.get(uid)

    def all_keys(self) -> list[Key]:
        return list(self._keys.values())

    def affected_by(self, change: CacheChange[Obj]) -> Iterator[Key]:
        """The controllers of the child before and after the change; for an orphan, all owners that select it."""
        found: dict[Key, None] = {}
        for child in (change.old, change.new):
            reference = controller_reference(child) if child is not None else None
            if reference is not None and (key := self._keys.get(reference.get("uid", ""))) is not None:
                found[key] = None
        if change.new is not None and controller_reference(change.new) is None:
            for key in self._in.get(change.key.namespace, ()):
                owner = self._find(key)
                if owner is not None and selector_of_owner(owner).matches(labels(change.new)):
                    found[key] = None
        yield from found
