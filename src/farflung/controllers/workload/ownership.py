"""Who controls whom: the reference in a child, and children that are to be adopted or let go.  Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from farflung.client.resource import Collection
from farflung.controllers.workload.objects import is_terminating, labels
from farflung.controllers.workload.steps import Step, update
from farflung.machinery.errors import Obj
from farflung.machinery.selectors import LabelSelector, selector_of
from farflung.runtime.cache import Change, Key


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


class Offspring:
    """Children of one kind, by who controls them; those whom nobody does, by namespace."""

    def __init__(self) -> None:
        self._of: dict[str, dict[Key, None]] = {}
        self._orphans: dict[str, dict[Key, None]] = {}

    def hear(self, change: Change[Obj]) -> None:
        if change.old is not None:
            self._remove(change.old, change.key)
        if change.new is not None:
            shelf, place = self._shelf(change.new)
            shelf.setdefault(place, {})[change.key] = None

    def of(self, uid: str) -> list[Key]:
        return sorted(self._of.get(uid, ()))

    def orphans(self, namespace: str) -> list[Key]:
        return sorted(self._orphans.get(namespace, ()))

    def _remove(self, obj: Obj, key: Key) -> None:
        shelf, place = self._shelf(obj)
        filed = shelf.get(place, {})
        filed.pop(key, None)
        if not filed:
            shelf.pop(place, None)

    def _shelf(self, obj: Obj) -> tuple[dict[str, dict[Key, None]], str]:
        reference = controller_of(obj)
        if reference is None:
            return self._orphans, obj["metadata"].get("namespace", "")
        return self._of, reference.get("uid", "")


class Owners:
    """Owners of one kind, and which of them a change of a child concerns."""

    def __init__(self, find: Callable[[Key], Obj | None]) -> None:
        self._find = find
        self._keys: dict[str, Key] = {}
        self._in: dict[str, dict[Key, None]] = {}

    def hear(self, change: Change[Obj]) -> None:
        if change.old is not None:
            self._keys.pop(change.old["metadata"]["uid"], None)
            self._in.get(change.key.namespace, {}).pop(change.key, None)
        if change.new is not None:
            self._keys[change.new["metadata"]["uid"]] = change.key
            self._in.setdefault(change.key.namespace, {})[change.key] = None

    def key(self, uid: str) -> Key | None:
        return self._keys.get(uid)

    def every(self) -> list[Key]:
        return list(self._keys.values())

    def concerned(self, change: Change[Obj]) -> Iterator[Key]:
        """Whoever controlled the child before or does now; of an orphan, all that select it."""
        found: dict[Key, None] = {}
        for child in (change.old, change.new):
            reference = controller_of(child) if child is not None else None
            if reference is not None and (key := self._keys.get(reference.get("uid", ""))) is not None:
                found[key] = None
        if change.new is not None and controller_of(change.new) is None:
            found |= dict.fromkeys(self._selecting(change.key.namespace, labels(change.new)))
        yield from found

    def _selecting(self, namespace: str, worn: dict[str, str]) -> Iterator[Key]:
        for key in self._in.get(namespace, ()):
            owner = self._find(key)
            if owner is not None and selector(owner).matches(worn):
                yield key
