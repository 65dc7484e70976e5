"""Log changes of EdgePlacements, in the form of the first version of the edge scheduler."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import orjson

from farflung.apis.edge.names import EDGE_PLACEMENTS
from farflung.client.rest import Client
from farflung.lib.klog import Bare, Logger
from farflung.machinery.errors import Obj
from farflung.runtime.cache import CacheChange
from farflung.runtime.environment import Environment
from farflung.runtime.informer import Informer

MAX_LOGGED_OBJECT: Final = 16_384  #: characters of an object in the log; a tenant chooses its annotations


async def observe(view: Client, env: Environment, log: Logger) -> None:
    """Only log, until cancelled."""

    def listener(change: CacheChange[Obj]) -> None:
        log_change(log, change.old, change.new)

    def trouble(what: str, error: Exception) -> None:
        log.error(error, what)

    informer: Informer[Obj] = Informer(view, EDGE_PLACEMENTS, orjson.loads, env, trouble)
    informer.subscribe(listener)
    await informer.run()


def log_change(log: Logger, old: Obj | None, new: Obj | None, *, v: int = 0) -> None:
    if old is None and new is not None:
        log.info("Observed add", v=v, obj=_shown(new))
    elif new is None and old is not None:
        log.info("Observed delete", v=v, obj=_shown(old))
    elif old is not None and new is not None:
        log.info("Observed update", v=v, oldObj=_shown(old), newObj=_shown(new))


def _shown(placement: Obj) -> Bare:
    text = go_struct(placement)
    return Bare(text if len(text) <= MAX_LOGGED_OBJECT else f"{text[:MAX_LOGGED_OBJECT]}…")


def go_struct(placement: Obj) -> str:
    """An EdgePlacement as Go prints a pointer to one with %+v.  `LocationWorkspaceSelector` is a field of that version;
    `Upsync`, a later one, is shown if it is set."""
    metadata, spec, status = placement["metadata"], placement.get("spec") or {}, placement.get("status") or {}
    kind = _fields(Kind=placement.get("kind", ""), APIVersion=placement.get("apiVersion", ""))
    selectors = (_selector(one) for one in spec.get("locationSelectors") or ())
    upsync = {"Upsync": _listed(_upsync(one) for one in spec["upsync"])} if spec.get("upsync") else {}
    shown = _fields(
        TypeMeta=kind,
        ObjectMeta=_metadata(metadata),
        Spec=_fields(
            LocationWorkspaceSelector=_selector(spec.get("locationWorkspaceSelector") or {}),
            LocationSelectors=_listed(selectors),
            NamespaceSelector=_selector(spec.get("namespaceSelector") or {}),
            NonNamespacedObjects=_listed(_non_namespaced(one) for one in spec.get("nonNamespacedObjects") or ()),
            **upsync,
        ),
        Status=_fields(
            SpecGeneration=status.get("specGeneration", 0),
            MatchingLocationCount=status.get("matchingLocationCount", 0),
        ),
    )
    return f"&{shown}"


def _metadata(metadata: Obj) -> str:
    return _fields(
        Name=metadata.get("name", ""),
        GenerateName=metadata.get("generateName", ""),
        Namespace="",
        SelfLink="",
        UID=metadata.get("uid", ""),
        ResourceVersion=metadata.get("resourceVersion", ""),
        Generation=metadata.get("generation", 0),
        CreationTimestamp=_time(metadata.get("creationTimestamp")),
        DeletionTimestamp=_time(metadata.get("deletionTimestamp")),
        DeletionGracePeriodSeconds=metadata.get("deletionGracePeriodSeconds", "<nil>"),
        Labels=_map(metadata.get("labels") or {}),
        Annotations=_map(metadata.get("annotations") or {}),
        OwnerReferences=_listed(_owner(one) for one in metadata.get("ownerReferences") or ()),
        Finalizers=_listed(metadata.get("finalizers") or ()),
        ZZZ_DeprecatedClusterName="",
        ManagedFields=_listed(_managed(one) for one in metadata.get("managedFields") or ()),
    )


def _managed(entry: Obj) -> str:
    return _fields(
        Manager=entry.get("manager", ""),
        Operation=entry.get("operation", ""),
        APIVersion=entry.get("apiVersion", ""),
        Time=_time(entry.get("time")),
        FieldsType=entry.get("fieldsType", ""),
        FieldsV1=orjson.dumps(entry.get("fieldsV1") or {}).decode(),
        Subresource=entry.get("subresource", ""),
    )


def _owner(reference: Obj) -> str:
    return _fields(
        APIVersion=reference.get("apiVersion", ""),
        Kind=reference.get("kind", ""),
        Name=reference.get("name", ""),
        UID=reference.get("uid", ""),
        Controller=_truth(reference.get("controller")),
        BlockOwnerDeletion=_truth(reference.get("blockOwnerDeletion")),
    )


def _selector(selector: Obj) -> str:
    expressions = (
        _fields(Key=one.get("key", ""), Operator=one.get("operator", ""), Values=_listed(one.get("values") or ()))
        for one in selector.get("matchExpressions") or ()
    )
    return _fields(MatchLabels=_map(selector.get("matchLabels") or {}), MatchExpressions=_listed(expressions))


def _non_namespaced(objects: Obj) -> str:
    return _fields(
        APIGroup=objects.get("apiGroup", ""),
        Resources=_listed(objects.get("resources") or ()),
        ResourceNames=_listed(objects.get("resourceNames") or ()),
        LabelSelectors=_listed(_selector(one) for one in objects.get("labelSelectors") or ()),
    )


def _upsync(objects: Obj) -> str:
    return _fields(
        APIGroup=objects.get("apiGroup", ""),
        Resources=_listed(objects.get("resources") or ()),
        Namespaces=_listed(objects.get("namespaces") or ()),
        Names=_listed(objects.get("names") or ()),
    )


def _fields(**fields: object) -> str:
    return "{" + " ".join(f"{name}:{value}" for name, value in fields.items()) + "}"


def _listed(items: Any) -> str:
    return f"[{' '.join(map(str, items))}]"


def _map(items: Mapping[str, str]) -> str:
    return f"map[{' '.join(f'{name}:{value}' for name, value in sorted(items.items()))}]"


def _truth(value: bool | None) -> str:
    return "<nil>" if value is None else str(value).lower()


def _time(text: str | None) -> str:
    """In the zone of this machine, as Go does."""
    if text is None:
        return "<nil>"
    return datetime.fromisoformat(text).astimezone().strftime("%Y-%m-%d %H:%M:%S %z %Z")
