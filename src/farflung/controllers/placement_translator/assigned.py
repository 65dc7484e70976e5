"""What an API server, or a controller beside it, writes into an object that nobody asked for.

It means something only on that server, so it does not travel; and what the server of a copy wrote into the copy stays
there.  What of a Service a user fixed is known from its `managedFields`: a server takes addresses and ports after it
has noted who asked for what.  Without them nothing is known to be assigned.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from farflung.machinery.errors import Obj
from farflung.machinery.fields.sets import Fields, has, path

Section = Mapping[str, Any]

SERVICE_FIELDS: Final = ("clusterIP", "clusterIPs", "healthCheckNodePort", "ipFamilies", "ipFamilyPolicy")
HEADLESS: Final = "None"
JOB_LABELS: Final = frozenset(
    {"batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name", "controller-uid", "job-name"}
)
NAMESPACE_LABEL: Final = "kubernetes.io/metadata.name"
TOKEN_VOLUME: Final = re.compile(r"kube-api-access-[a-z0-9]{5}", re.ASCII).fullmatch
CONTAINERS: Final = ("initContainers", "containers", "ephemeralContainers")


def without_assigned(obj: Section) -> Obj:
    """The object without what its server assigned.  It shares what did not change."""
    remove = _REMOVE.get(_kind(obj))
    return {**obj} if remove is None else remove(obj)


def with_assigned(wanted: Section, observed: Section) -> Section:
    """What is wanted, with what the server of the observed object assigned there and would not assign anew."""
    keep = _KEEP.get(_kind(wanted))
    return wanted if keep is None else keep(wanted, observed)


def _kind(obj: Section) -> tuple[str, str]:
    group, slash, _ = obj["apiVersion"].partition("/")
    return (group if slash else ""), obj["kind"]


def _without(section: Section, keys: Iterable[str]) -> Obj:
    left = dict(section)
    for key in keys:
        left.pop(key, None)
    return left


def _relabelled(obj: Section, labels: Section) -> Obj:
    """The object with these labels; without any if there are none."""
    metadata = _without(obj.get("metadata") or {}, ["labels"])
    if labels:
        metadata["labels"] = labels
    return {**obj, "metadata": metadata}


def _labels(obj: Section) -> Section:
    return (obj.get("metadata") or {}).get("labels") or {}


# --- sections that are the server's as a whole ------------------------------------------------------


def _is_aggregated(role: Section) -> bool:
    return bool(role.get("aggregationRule"))


def _bare_namespace(namespace: Section) -> Obj:
    return _relabelled(_without(namespace, ["spec"]), _without(_labels(namespace), [NAMESPACE_LABEL]))


def _bare_account(account: Section) -> Obj:
    return _without(account, ["secrets"])


def _bare_role(role: Section) -> Obj:
    return _without(role, ["rules"]) if _is_aggregated(role) else {**role}


def _with_section(name: str) -> Callable[[Section, Section], Section]:
    def keep(wanted: Section, observed: Section) -> Section:
        return {**wanted, name: observed[name]} if name in observed else wanted

    return keep


def _aggregated_role(wanted: Section, observed: Section) -> Section:
    return _with_section("rules")(wanted, observed) if _is_aggregated(wanted) else wanted


# --- Services -------------------------------------------------------------------------------------


def _bare_service(service: Section) -> Obj:
    entries = service["metadata"].get("managedFields")
    spec = service.get("spec")
    if not entries or not spec:
        return {**service}
    owned = [one.get("fieldsV1") or {} for one in entries]
    bare = _without(spec, [name for name in SERVICE_FIELDS if name in spec and not _is_fixed(name, spec, owned)])
    if "clusterIP" in bare and "clusterIPs" not in bare:
        bare["clusterIPs"] = [bare["clusterIP"]]  # to write only one of the two means to give up both
    if bare.get("ports"):
        below = [fields.get("f:spec", {}).get("f:ports") for fields in owned]
        bare["ports"] = [_bare_port(port, [one for one in below if one is not None]) for port in bare["ports"]]
    return {**service, "spec": bare}


def _is_fixed(name: str, spec: Section, owned: list[Fields]) -> bool:
    if name == "clusterIP" and spec[name] == HEADLESS:
        return True
    return any(has(fields, path("spec", name)) for fields in owned)


def _bare_port(port: Section, owned: list[Fields]) -> Section:
    if "nodePort" not in port:
        return port
    key = f'k:{{"port":{port.get("port")},"protocol":"{port.get("protocol", "TCP")}"}}'
    fixed = any(not ports or "f:nodePort" in ports.get(key, ()) for ports in owned)
    return port if fixed else _without(port, ["nodePort"])


# --- Jobs -----------------------------------------------------------------------------------------


def _bare_job(job: Section) -> Obj:
    spec = job.get("spec")
    if not spec or spec.get("manualSelector"):
        return {**job}
    bare = _without(spec, ["selector"])
    template = bare.get("template")
    if template and not JOB_LABELS.isdisjoint(_labels(template)):
        bare["template"] = _relabelled(template, _without(_labels(template), JOB_LABELS))
    obj = {**job, "spec": bare}
    return obj if JOB_LABELS.isdisjoint(_labels(job)) else _relabelled(obj, _without(_labels(job), JOB_LABELS))


def _job(wanted: Section, observed: Section) -> Section:
    spec, there = wanted.get("spec"), observed.get("spec") or {}
    if not spec or spec.get("manualSelector") or "selector" not in there:
        return wanted
    spec = {**spec, "selector": there["selector"]}
    template = spec.get("template") or {}
    generated = {key: value for key, value in _labels(there.get("template") or {}).items() if key in JOB_LABELS}
    if generated:
        spec["template"] = _relabelled(template, {**_labels(template), **generated})
    return {**wanted, "spec": spec}


# --- Pods -----------------------------------------------------------------------------------------


def _injected(spec: Section) -> list[Section]:
    """The volumes that carry the token of the pod's ServiceAccount."""
    return [one for one in spec.get("volumes") or () if "projected" in one and TOKEN_VOLUME(one.get("name") or "")]


def _bare_pod(pod: Section) -> Obj:
    spec = pod.get("spec")
    if not spec:
        return {**pod}
    bare = _without(spec, ["nodeName"])
    if injected := _injected(spec):
        names = {one["name"] for one in injected}
        _put(bare, "volumes", [one for one in spec["volumes"] if one not in injected])
        for field in CONTAINERS:
            if field in bare:
                bare[field] = [_unmounted(one, names) for one in bare[field] or ()]
    return {**pod, "spec": bare}


def _put(section: Obj, name: str, entries: list[Any]) -> None:
    if entries:
        section[name] = entries
    else:
        section.pop(name, None)


def _unmounted(container: Section, names: set[str]) -> Section:
    mounts = container.get("volumeMounts")
    if not mounts:
        return container
    bare = dict(container)
    _put(bare, "volumeMounts", [one for one in mounts if one.get("name") not in names])
    return bare


def _pod(wanted: Section, observed: Section) -> Section:
    spec, there = wanted.get("spec"), observed.get("spec") or {}
    if not spec:
        return wanted
    spec = dict(spec)
    if "nodeName" in there:
        spec.setdefault("nodeName", there["nodeName"])
    if injected := _injected(there):
        names = {one["name"] for one in injected}
        spec["volumes"] = [*(spec.get("volumes") or ()), *injected]
        for field in CONTAINERS:
            if spec.get(field):
                mounts = {one.get("name"): _mounts(one, names) for one in there.get(field) or ()}
                spec[field] = [_mounted(one, mounts.get(one.get("name"), [])) for one in spec[field]]
    return {**wanted, "spec": spec}


def _mounts(container: Section, names: set[str]) -> list[Section]:
    return [one for one in container.get("volumeMounts") or () if one.get("name") in names]


def _mounted(container: Section, mounts: list[Section]) -> Section:
    return {**container, "volumeMounts": [*(container.get("volumeMounts") or ()), *mounts]} if mounts else container


_REMOVE: Final[Mapping[tuple[str, str], Callable[[Section], Obj]]] = {
    ("", "Namespace"): _bare_namespace,
    ("", "Pod"): _bare_pod,
    ("", "Service"): _bare_service,
    ("", "ServiceAccount"): _bare_account,
    ("batch", "Job"): _bare_job,
    ("rbac.authorization.k8s.io", "ClusterRole"): _bare_role,
}
#: a server gives a Service that is written without its addresses and ports those that it had
_KEEP: Final[Mapping[tuple[str, str], Callable[[Section, Section], Section]]] = {
    ("", "Namespace"): _with_section("spec"),
    ("", "Pod"): _pod,
    ("", "ServiceAccount"): _with_section("secrets"),
    ("batch", "Job"): _job,
    ("rbac.authorization.k8s.io", "ClusterRole"): _aggregated_role,
}
