"""What the API server adds to a new Pod besides defaults: ServiceAccount and token volume, tolerations, priority."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Final

from farflung.apis.core.pods import add_tolerations
from farflung.apis.globalscheduler.machines import is_virtual_machine
from farflung.apis.validation import spec_of
from farflung.hub.auth.authorizer import Authorizer
from farflung.hub.auth.virtual_machines import PODS, check_binding, check_priority
from farflung.hub.registry.pipeline import Stage, Step, Write, of_kinds
from farflung.hub.request.attributes import Attributes
from farflung.hub.request.user import User
from farflung.machinery.errors import ApiError, Obj, forbidden

TOKEN_PATH: Final = "/var/run/secrets/kubernetes.io/serviceaccount"  # noqa: S105
TOKEN_VOLUME: Final = "kube-api-access-"  # noqa: S105
TOKEN_SECONDS: Final = 3607


def account_name(pod: Obj) -> str:
    """The ServiceAccount a pod runs as."""
    name: str = spec_of(pod).get("serviceAccountName") or "default"
    return name


def no_account(pod: Obj, namespace: str) -> ApiError:
    account, name = account_name(pod), (pod.get("metadata") or {}).get("name", "")
    why = f'error looking up service account {namespace}/{account}: serviceaccount "{account}" not found'
    return forbidden("", "pods", name, why)


def no_priority_class(pod: Obj) -> ApiError:
    name = (pod.get("metadata") or {}).get("name", "")
    return forbidden("", "pods", name, f"no PriorityClass with name {spec_of(pod)['priorityClassName']} was found")


def admit_pod(pod: Obj, *, account: Obj | None, priority_class: Obj | None, suffix: str) -> None:
    """`account`: its ServiceAccount, None if it needs none; `priority_class`: the one that the pod names, or the
    global default; `suffix`: five random characters."""
    add_account(pod, account, suffix)
    add_tolerations(pod)
    add_priority(pod, priority_class)


def add_account(pod: Obj, account: Obj | None, suffix: str) -> None:
    spec = pod["spec"]
    spec["serviceAccountName"] = spec["serviceAccount"] = account_name(pod)
    account = account or {}
    if not spec.get("imagePullSecrets") and account.get("imagePullSecrets"):
        spec["imagePullSecrets"] = [dict(secret) for secret in account["imagePullSecrets"]]
    wanted = spec.get("automountServiceAccountToken", account.get("automountServiceAccountToken", True))
    if wanted:
        _mount_token(spec, suffix)


def _mount_token(spec: Obj, suffix: str) -> None:
    containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    without = [
        container
        for container in containers
        if all(mount.get("mountPath") != TOKEN_PATH for mount in container.get("volumeMounts") or ())
    ]
    if not without:
        return
    existing = next(
        (volume["name"] for volume in spec.get("volumes") or () if volume.get("name", "").startswith(TOKEN_VOLUME)),
        None,
    )
    name = existing or TOKEN_VOLUME + suffix
    for container in without:
        mount = {"name": name, "readOnly": True, "mountPath": TOKEN_PATH}
        container["volumeMounts"] = [*(container.get("volumeMounts") or ()), mount]
    if existing is None:
        spec["volumes"] = [*(spec.get("volumes") or ()), _token_volume(name)]


def _token_volume(name: str) -> Obj:
    namespace = {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}
    sources = [
        {"serviceAccountToken": {"expirationSeconds": TOKEN_SECONDS, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [namespace]}},
    ]
    return {"name": name, "projected": {"sources": sources, "defaultMode": 0o644}}


def add_priority(pod: Obj, priority_class: Obj | None) -> None:
    """Raises 403 for a priority other than that of the class."""
    spec, chosen = pod["spec"], priority_class or {}
    if chosen:
        spec.setdefault("priorityClassName", (chosen.get("metadata") or {}).get("name", ""))
    priority = chosen.get("value", 0)
    preemption = chosen.get("preemptionPolicy", "PreemptLowerPriority")
    name = (pod.get("metadata") or {}).get("name", "")
    if spec.setdefault("priority", priority) != priority:
        why = f"the integer value of priority ({spec['priority']}) must not be provided in pod spec"
        raise forbidden("", "pods", name, f"{why}; priority admission controller computed {priority} from the given "
                        "PriorityClass name")  # fmt: skip
    if spec.setdefault("preemptionPolicy", preemption) != preemption:
        why = f"the string value of PreemptionPolicy ({spec['preemptionPolicy']}) must not be provided in pod spec"
        raise forbidden("", "pods", name, f"{why}; priority admission controller computed {preemption} from the given "
                        "PriorityClass name")  # fmt: skip


# --- Virtual machines in a hub without workspaces -------------------------------------------------


@dataclass(frozen=True, slots=True)
class MachineAdmission:
    authorizer: Authorizer

    @property
    def steps(self) -> tuple[Step, ...]:
        return (Step("check_machine", Stage.REFUSE, self._check_machine, of_kinds({PODS})),)

    def _check_machine(self, write: Write) -> None:
        call, new, old = write.call, write.new, write.old
        if not any(pod is not None and is_virtual_machine(pod) for pod in (new, old)):
            return
        may = partial(self._may, call.target.cluster, call.user)
        check_priority(call.user, call.resource, new, old, may)
        check_binding(call.user, new, old, may)

    def _may(self, cluster: str, user: User, attributes: Attributes) -> bool:
        return self.authorizer.decide(cluster, user, attributes).allowed
