"""Admission plugins: the steps of the write pipeline that concern some built-in kinds, or depend on other objects."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from functools import partial
from typing import Final

from farflung.apis import certificates
from farflung.apis.apiextensions.conditions import with_status
from farflung.apis.core import validation as core
from farflung.apis.core.services import allocate_service, give_back
from farflung.apis.globalscheduler.machines import is_virtual_machine
from farflung.apis.names import CERTIFICATES_GROUP, POLICIES_GROUP, RBAC_GROUP
from farflung.hub.admission import limit_ranges, pod_admission
from farflung.hub.admission.policies.matcher import CREATE as CREATE_OPERATION
from farflung.hub.admission.policies.matcher import DELETE as DELETE_OPERATION
from farflung.hub.admission.policies.matcher import UPDATE as UPDATE_OPERATION
from farflung.hub.admission.policies.registry import Policies
from farflung.hub.admission.quota_tracker import QuotaExceeded, Quotas
from farflung.hub.admission.service_pools import ClusterPools
from farflung.hub.auth.authorizer import Authorizer
from farflung.hub.auth.certificate_requests import CLIENT, check_signer, requests_administrator
from farflung.hub.auth.escalation import check_no_escalation
from farflung.hub.catalog import objects
from farflung.hub.catalog.kinds import Kind
from farflung.hub.registry.call import Call
from farflung.hub.registry.pipeline import CHANGES, CREATE, UPDATE, Stage, Step, Write, of_kinds, validate_change
from farflung.hub.request.options import WriteOptions
from farflung.hub.request.user import ADMINISTRATORS, user_info
from farflung.lib.worker_pool import WorkerPool
from farflung.machinery.errors import Obj, forbidden

SERVICE_ACCOUNT_WAIT: Final = 1.0  #: seconds to wait for a namespace's default ServiceAccount

PODS: Final = ("", "pods")
CLAIMS: Final = ("", "persistentvolumeclaims")
NAMESPACES: Final = ("", "namespaces")
SERVICES: Final = ("", "services")
SIGNING_REQUESTS: Final = (CERTIFICATES_GROUP, "certificatesigningrequests")
DEFINITIONS: Final = ("apiextensions.k8s.io", "customresourcedefinitions")
ROLES: Final = frozenset(
    (RBAC_GROUP, plural) for plural in ("roles", "rolebindings", "clusterroles", "clusterrolebindings")
)


# --- limit ranges ---------------------------------------------------------------------------------


def limit_ranges_of(call: Call) -> list[Obj]:
    prefix = f"/core/limitranges/{call.target.cluster}/{call.target.namespace}/"
    return [objects.decode(entry) for entry in call.store.list(prefix).entries]


def set_default_limits(write: Write) -> None:
    if is_virtual_machine(write.new):
        return
    limit_ranges.default_pod(write.new, limit_ranges_of(write.call))


def check_pod_limits(write: Write) -> None:
    if is_virtual_machine(write.new):
        return
    limit_ranges.check_pod(write.new, limit_ranges_of(write.call))


def check_claim_limits(write: Write) -> None:
    limit_ranges.check_claim(write.new, limit_ranges_of(write.call))


# --- service accounts and priorities of Pods ------------------------------------------------------


async def inject_service_account(write: Write) -> None:
    """The ServiceAccount of a Pod, its token volume and its image pull secrets; its priority and tolerations."""
    call, pod = write.call, write.new
    if is_virtual_machine(pod):
        return
    spec = pod.setdefault("spec", {})
    account = await service_account(call, pod_admission.account_name(pod))
    if account is None:
        raise pod_admission.no_account(pod, call.target.namespace)
    if name := spec.get("priorityClassName"):
        priority = call.find("scheduling.k8s.io", "priorityclasses", "", name)
        if priority is None:
            raise pod_admission.no_priority_class(pod)
    else:
        priority = default_priority_class(call)
    pod_admission.admit_pod(pod, account=account, priority_class=priority, suffix=call.tools.random_suffix())


def default_priority_class(call: Call) -> Obj | None:
    """The PriorityClass of Pods that name none; of several global defaults the lowest."""
    entries = call.store.list(f"/scheduling.k8s.io/priorityclasses/{call.target.cluster}/").entries
    marked = [objects.decode(entry) for entry in entries if b'"globalDefault":true' in entry.value]
    defaults = [one for one in marked if one.get("globalDefault") is True]
    return min(defaults, key=lambda one: one.get("value", 0), default=None)


async def service_account(call: Call, name: str) -> Obj | None:
    """A ServiceAccount of the namespace.  A controller creates the default one right after its namespace, so this
    waits for it."""
    account = call.find("", "serviceaccounts", call.target.namespace, name)
    if account is not None or name != "default":
        return account
    changed = asyncio.Event()
    kind = call.tools.kinds.builtin.of("", "v1", "serviceaccounts")
    prefix = objects.prefix(kind.resource, call.target.cluster, call.target.namespace)
    subscription = call.store.subscribe(prefix, lambda changes: changed.set())
    try:
        async with asyncio.timeout(SERVICE_ACCOUNT_WAIT):
            while account is None:
                await changed.wait()
                changed.clear()
                account = call.find("", "serviceaccounts", call.target.namespace, name)
    except TimeoutError:
        return None
    finally:
        subscription.cancel()
    return account


# --- certificate signing requests -----------------------------------------------------------------


def set_requester(write: Write) -> None:
    """The requester of a certificate is the user of the request, whatever the client sent."""
    call, spec = write.call, write.new["spec"]
    info = user_info(call.user)
    spec |= {"username": call.user.name, "groups": list(call.user.groups)}
    spec |= {name: info[name] for name in ("uid", "extra") if name in info}
    if requests_administrator(spec):
        raise write.refuse(f"use of {CLIENT} signer with {ADMINISTRATORS} group is not allowed")


def prepare_approval(write: Write) -> None:
    assert write.old is not None
    certificates.prepare_approval(write.new, write.old, write.call.now())


def validate_approval(write: Write) -> None:
    assert write.old is not None
    validate_change(write, certificates.validate_approval(write.new, write.old))


# --- namespaces, services and definitions ---------------------------------------------------------


def validate_finalize(write: Write) -> None:
    assert write.old is not None
    validate_change(write, core.validate_finalize(write.new, write.old))


def finish_definition(write: Write) -> None:
    """Decide whether a CustomResourceDefinition gets its names, so that its client reads at once whether it is
    served.  A controller decides again when names become free."""
    call, definition = write.call, write.new
    group = definition["spec"]["group"]
    suffix, own = f".{group}", call.key_of(definition["metadata"]["name"])
    entries = call.store.list(objects.prefix(call.resource, call.target.cluster)).entries
    others = [objects.decode(entry) for entry in entries if entry.key.endswith(suffix) and entry.key != own]
    bound = call.tools.kinds.bound_names(call.target.cluster, group)
    definition["status"] = with_status(definition, others + bound, call.now())


# --- policies and quota ---------------------------------------------------------------------------


#: policies do not apply to policies: one that refuses everything could not be deleted
NOT_REVIEWED: Final = frozenset(
    (POLICIES_GROUP, plural)
    for plural in (
        "validatingadmissionpolicies",
        "validatingadmissionpolicybindings",
        "mutatingadmissionpolicies",
        "mutatingadmissionpolicybindings",
    )
)


def shown_options(options: WriteOptions) -> Obj:
    shown: Obj = {"fieldValidation": options.field_validation}
    if options.field_manager:
        shown["fieldManager"] = options.field_manager
    if options.dry_run:
        shown["dryRun"] = ["All"]
    return shown


def is_reviewed(kind: Kind, operation: str) -> bool:
    return (kind.resource.group, kind.resource.plural) not in NOT_REVIEWED


def has_quota(kind: Kind, operation: str) -> bool:
    return kind.resource.namespaced and operation in (CREATE, UPDATE, "resize")


def is_only_counted(kind: Kind, operation: str) -> bool:
    """Whether quotas do not depend on the content of objects."""
    return (kind.resource.group, kind.resource.plural) not in (PODS, CLAIMS, SERVICES)


@dataclass(frozen=True, slots=True)
class Plugins:
    """The plugins of a hub, with their dependencies."""

    authorizer: Authorizer
    pools: ClusterPools
    quotas: Quotas
    policies: Policies
    evaluators: WorkerPool  #: for expensive expressions of policies

    @property
    def steps(self) -> tuple[Step, ...]:
        signing_request = of_kinds({SIGNING_REQUESTS}, "approval")
        return (
            Step("check_escalation", Stage.ESCALATE, self._check_escalation, of_kinds(ROLES)),
            Step("set_default_limits", Stage.INJECT, set_default_limits, of_kinds({PODS}, CREATE)),
            Step("inject_service_account", Stage.INJECT, inject_service_account, of_kinds({PODS}, CREATE)),
            Step("prepare_approval", Stage.PREPARE, prepare_approval, signing_request),
            Step("set_requester", Stage.COMPLETE, set_requester, of_kinds({SIGNING_REQUESTS}, CREATE)),
            Step("allocate_addresses", Stage.ALLOCATE, self._allocate_addresses, of_kinds({SERVICES})),
            Step("validate_approval", Stage.VALIDATE, validate_approval, signing_request),
            Step("validate_finalize", Stage.VALIDATE, validate_finalize, of_kinds({NAMESPACES}, "finalize")),
            Step(
                "check_signer_rights", Stage.REFUSE, self._check_signer_rights, of_kinds({SIGNING_REQUESTS}, *CHANGES)
            ),
            Step("check_pod_limits", Stage.LIMIT, check_pod_limits, of_kinds({PODS}, CREATE, "resize")),
            Step("check_claim_limits", Stage.LIMIT, check_claim_limits, of_kinds({CLAIMS}, CREATE, UPDATE)),
            Step("check_policies", Stage.POLICIES, self._check_policies, is_reviewed, self._has_policies),
            Step("reserve_quota", Stage.QUOTA, self._reserve_quota, has_quota, self._has_quota, is_only_counted),
            Step("finish_definition", Stage.FINISH, finish_definition, of_kinds({DEFINITIONS}, CREATE, UPDATE)),
        )

    def _has_policies(self, call: Call) -> bool:
        return self.policies.of(call.target.cluster) is not None

    def _has_quota(self, call: Call) -> bool:
        return self.quotas.are_in(call.target.cluster, call.target.namespace)

    def _check_escalation(self, write: Write) -> Awaitable[None] | None:
        call = write.call
        return check_no_escalation(self.authorizer, call.user, call.target, write.new, write.old)

    def _check_signer_rights(self, write: Write) -> None:
        call = write.call
        assert write.old is not None
        check_signer(self.authorizer, call.user, call.target, write.new, write.old)

    def _allocate_addresses(self, write: Write) -> None:
        """Cluster addresses and node ports of a Service."""
        pool = self.pools.of(write.call.target.cluster)
        allocated = allocate_service(write.new, write.old, pool)
        write.rollbacks.append(partial(give_back, allocated, pool))

    def _check_policies(self, write: Write) -> Awaitable[None] | None:
        """Apply the cluster's ValidatingAdmissionPolicies.  Raises the error of the first one that refuses."""
        call, old = write.call, write.old
        policies = self.policies.of(call.target.cluster)
        if policies is None:
            return None
        new: Obj | None = write.new
        if write.delete_options is not None:
            operation, new, options = DELETE_OPERATION, None, write.delete_options
        else:
            operation = CREATE_OPERATION if old is None else UPDATE_OPERATION
            options = shown_options(write.options)
        hooks = policies.concerning(operation, call.resource, call.target.subresource)
        if not hooks:
            return None
        if new is not None and old is not None and call.target.subresource == "scale":
            assert call.kind.scaling is not None
            new, old = call.kind.scaling.scale(new), call.kind.scaling.scale(old)
        from farflung.hub.admission.policies.review import AdmissionRequest  # a hub without policies does not load CEL
        from farflung.hub.admission.policies.session import PolicyReview

        request = AdmissionRequest(call, operation, new, old, options=options, dry_run=bool(options.get("dryRun")))
        return PolicyReview(request, call, write.warnings, self.evaluators).run(hooks)

    def _reserve_quota(self, write: Write) -> None:
        """Reserve quota of the namespace, until the store reports the write or the write fails."""
        call, target = write.call, write.call.target
        if not self.quotas.are_in(target.cluster, target.namespace):
            return
        key = call.key_of(write.name)
        try:
            release = self.quotas.reserve(key, write.new, write.old, resize=target.subresource == "resize")
        except QuotaExceeded as error:
            name = limit_ranges.name_of(write.new)
            raise forbidden(call.resource.group, call.resource.plural, name, str(error)) from None
        write.cleanups.append(release)
