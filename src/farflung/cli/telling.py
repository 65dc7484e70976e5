"""What syncers would be told that they are not told now, and the other way."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import orjson

from farflung.controllers.placement_translator.kinds import Category, category
from farflung.controllers.placement_translator.syncer_config import Told, told_by
from farflung.controllers.placement_translator.values import Kind
from farflung.lib.words import count
from farflung.machinery.errors import Obj

NAMED: Final = 3  #: kinds that are named where several come or go


def changes(before: Told, after: Told) -> list[Obj]:
    """Each with a `path` of the SyncerConfig, `what` is different there, and whether it is `added` or `removed`."""
    was, will = _sayings(told_by(before.spec())), _sayings(told_by(after.spec()))
    return [
        {"path": path, "what": what, "change": change}
        for path in will
        for some, others, change in ((will, was, "added"), (was, will, "removed"))
        for what in sorted(some[path] - others[path])
    ]


def _sayings(told: Told) -> dict[str, set[str]]:
    going = [part for part in told.parts if category(part.kind) is Category.EDGE]
    upsync = told.spec().get("upsync") or ()
    return {
        "spec.namespaceScope.namespaces": set(told.namespaces),
        "spec.namespaceScope.resources": {_versioned(kind, told) for kind in told.kinds},
        "spec.namespacedObjects": {str(part) for part in going if part.namespace},
        "spec.clusterScope": {str(part) for part in going if not part.namespace},
        "spec.upsync": {orjson.dumps(one).decode() for one in upsync},
    }


def _versioned(kind: Kind, told: Told) -> str:
    return f"{kind} {told.versions.get(kind, '')}".rstrip()


def lines(found: Iterable[Obj]) -> Iterator[str]:
    """`spec.clusterScope: clusterroles.rbac.authorization.k8s.io r added`; of many kinds only the first are named."""
    together: dict[tuple[str, str], list[str]] = {}
    for one in found:
        together.setdefault((one["path"], one["change"]), []).append(one["what"])
    for (path, change), some in together.items():
        if path.endswith(".resources") and len(some) > NAMED:
            yield f"{path}: {count(len(some), 'kind')} {change}"
        else:
            yield from (f"{path}: {what} {change}" for what in some)
