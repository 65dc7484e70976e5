"""What the server adds to an object that needs other objects, its author or chance: a Pod's account and token volume,
who asks for a certificate, a Service's address and node ports."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from farflung.hub import objects
from farflung.hub.admission import limit_ranges, pod_admission
from farflung.hub.admission.services import allocate_service, give_back
from farflung.hub.auth.certificate_requests import CLIENT, asks_for_everything
from farflung.hub.auth.user import ADMINISTRATORS
from farflung.hub.catalog.custom.establish import establish
from farflung.hub.quotas import Refused, nothing
from farflung.hub.registry.call import Call
from farflung.hub.registry.token_review import user_info
from farflung.machinery.errors import Obj, forbidden

PATIENCE: Final = 1.0  #: seconds to wait for a namespace's default ServiceAccount


async def furnish(call: Call, obj: Obj) -> None:
    """A new object, before it is prepared."""
    if is_core(call, "Pod"):
        limit_ranges.default_pod(obj, limit_ranges_of(call))
        await furnish_pod(call, obj)


def is_core(call: Call, kind: str) -> bool:
    """Whether it is about a kind of the core group as Kubernetes has it, and not as somebody's schema does."""
    return not call.resource.group and call.resource.kind == kind and not call.resource.custom


def limit_ranges_of(call: Call) -> list[Obj]:
    prefix = f"/core/limitranges/{call.target.cluster}/{call.target.namespace}/"
    return [objects.decode(entry) for entry in call.store.list(prefix).entries]


def sign(call: Call, obj: Obj) -> None:
    """A new object, after it is prepared: who asks for a certificate is not for the client to say."""
    if (call.resource.group, call.resource.kind) == ("certificates.k8s.io", "CertificateSigningRequest"):
        sign_certificate_request(call, obj)


def sign_certificate_request(call: Call, obj: Obj) -> None:
    info = user_info(call.user)
    obj["spec"] |= {"username": call.user.name, "groups": list(call.user.groups)}
    obj["spec"] |= {name: info[name] for name in ("uid", "extra") if name in info}
    if asks_for_everything(obj["spec"]):
        why = f"use of {CLIENT} signer with {ADMINISTRATORS} group is not allowed"
        raise forbidden(call.resource.group, call.resource.plural, obj["metadata"].get("name", ""), why)


@dataclass(slots=True)
class Taken:
    """What a write has taken beforehand: one of the two is called when it is over."""

    of_pools: Callable[[], None] = nothing  #: gives back what it took of the cluster's pools
    of_quotas: Callable[[], None] = nothing  #: ends what is set aside for it in quotas

    def give_back(self) -> None:
        """It did not happen."""
        self.of_pools()
        self.of_quotas()

    def keep(self) -> None:
        """It happened."""
        self.of_quotas()


def reserve(call: Call, obj: Obj, old: Obj | None) -> Taken:
    """Take what the object needs of the cluster's pools."""
    if not is_core(call, "Service"):
        return Taken()
    pool = call.tools.pools.of(call.target.cluster)
    allocated = allocate_service(obj, old, pool)
    return Taken(lambda: give_back(allocated, pool))


def admit(call: Call, obj: Obj, old: Obj | None, taken: Taken) -> None:
    """An object that may be stored: does its namespace have room for it?"""
    if call.target.namespace:
        taken.of_quotas = reserve_quota(call, obj, old)


def check_limit_ranges(call: Call, obj: Obj, old: Obj | None) -> None:
    """A valid object: does its namespace allow one of this size?"""
    subresource = call.target.subresource
    if is_core(call, "Pod") and (old is None or subresource == "resize"):
        limit_ranges.check_pod(obj, limit_ranges_of(call))
    elif is_core(call, "PersistentVolumeClaim") and not subresource:
        limit_ranges.check_claim(obj, limit_ranges_of(call))


def reserve_quota(call: Call, obj: Obj, old: Obj | None) -> Callable[[], None]:
    target, quotas = call.target, call.tools.quotas
    if not quotas.are_in(target.cluster, target.namespace):
        return nothing
    resize = target.subresource == "resize"
    if target.subresource and not resize:
        return nothing
    key = call.key_of(obj["metadata"].get("name", ""))
    try:
        return quotas.reserve(key, obj, old, resize=resize)
    except Refused as error:
        name = limit_ranges.name_of(obj)
        raise forbidden(call.resource.group, call.resource.plural, name, str(error)) from None


def settle(call: Call, obj: Obj) -> None:
    """A valid object, before it is written."""
    if (call.resource.group, call.resource.kind) == ("apiextensions.k8s.io", "CustomResourceDefinition"):
        establish(call, obj)


async def furnish_pod(call: Call, pod: Obj) -> None:
    spec = pod.setdefault("spec", {})
    account = await account_of(call, pod_admission.account_name(pod))
    if account is None:
        raise pod_admission.no_account(pod, call.target.namespace)
    if name := spec.get("priorityClassName"):
        priority = find(call, "scheduling.k8s.io", "priorityclasses", "", name)
        if priority is None:
            raise pod_admission.no_priority_class(pod)
    else:
        priority = default_priority_class(call)
    pod_admission.admit_pod(pod, account=account, priority_class=priority, suffix=call.tools.random_suffix())


def default_priority_class(call: Call) -> Obj | None:
    """The one that pods get which name none; of several the least."""
    entries = call.store.list(f"/scheduling.k8s.io/priorityclasses/{call.target.cluster}/").entries
    marked = [objects.decode(entry) for entry in entries if b'"globalDefault":true' in entry.value]
    defaults = [one for one in marked if one.get("globalDefault") is True]
    return min(defaults, key=lambda one: one.get("value", 0), default=None)


async def account_of(call: Call, name: str) -> Obj | None:
    """A ServiceAccount of the namespace.  A new namespace gets its default one right after it is made: wait for it."""
    account = find(call, "", "serviceaccounts", call.target.namespace, name)
    if account is not None or name != "default":
        return account
    came = asyncio.Event()
    kind = call.tools.kinds.builtin.of("", "v1", "serviceaccounts")
    home = objects.prefix(kind.resource, call.target.cluster, call.target.namespace)
    subscription = call.store.subscribe(home, lambda changes: came.set())
    try:
        async with asyncio.timeout(PATIENCE):
            while account is None:
                await came.wait()
                came.clear()
                account = find(call, "", "serviceaccounts", call.target.namespace, name)
    except TimeoutError:
        return None
    finally:
        subscription.cancel()
    return account


def find(call: Call, group: str, plural: str, namespace: str, name: str) -> Obj | None:
    """Another object of the same cluster."""
    kind = call.tools.kinds.builtin.of(group, "v1", plural)
    entry = call.store.get(objects.key(kind.resource, call.target.cluster, namespace, name))
    return None if entry is None else objects.decode(entry)
