"""What the server adds to a new object that needs other objects or chance: a Pod's account and token volume."""

from __future__ import annotations

from farflung.hub import objects
from farflung.hub.admission import pod_admission
from farflung.hub.verbs.call import Call
from farflung.machinery.errors import Obj


async def furnish(call: Call, obj: Obj) -> None:
    if (call.resource.group, call.resource.kind) == ("", "Pod"):
        furnish_pod(call, obj)


def furnish_pod(call: Call, pod: Obj) -> None:
    spec = pod.setdefault("spec", {})
    account = find(call, "", "serviceaccounts", call.target.namespace, pod_admission.account_name(pod))
    if account is None:
        raise pod_admission.no_account(pod, call.target.namespace)
    priority = None
    if name := spec.get("priorityClassName"):
        priority = find(call, "scheduling.k8s.io", "priorityclasses", "", name)
    pod_admission.admit_pod(pod, account=account, priority_class=priority, suffix=call.tools.random_suffix())


def find(call: Call, group: str, plural: str, namespace: str, name: str) -> Obj | None:
    """Another object of the same cluster."""
    kind = call.tools.kinds.of(group, "v1", plural)
    entry = call.store.get(objects.key(kind.resource, call.target.cluster, namespace, name))
    return None if entry is None else objects.decode(entry)
