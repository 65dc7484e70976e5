"""Policies and bindings for tests."""

from __future__ import annotations

from typing import Any

from hub_harness import Answer, LocalHub

from farflung.machinery.errors import Obj

GROUP = "/apis/admissionregistration.k8s.io/v1"
POLICIES = f"{GROUP}/validatingadmissionpolicies"
BINDINGS = f"{GROUP}/validatingadmissionpolicybindings"


def rule(*resources: str, operations: tuple[str, ...] = ("*",), **more: Any) -> Obj:
    return {
        "operations": list(operations),
        "apiGroups": ["*"],
        "apiVersions": ["*"],
        "resources": list(resources) or ["configmaps"],
        **more,
    }


def policy(name: str, *validations: str | Obj, match: Obj | None = None, **spec: Any) -> Obj:
    """About ConfigMaps, unless it says otherwise."""
    described = [one if isinstance(one, dict) else {"expression": one} for one in validations]
    body: Obj = {"matchConstraints": {"resourceRules": [rule()]} if match is None else match}
    if described:
        body["validations"] = described
    return {"metadata": {"name": name}, "spec": body | spec}


def binding(name: str, policy: str = "", *actions: str, **spec: Any) -> Obj:
    body = {"policyName": policy or name, "validationActions": list(actions or ("Deny",))}
    return {"metadata": {"name": name}, "spec": body | spec}


async def bind(hub: LocalHub, described: Obj, *actions: str, cluster: str = "", **spec: Any) -> None:
    """Create a policy and a binding of the same name, in a workspace if its cluster is named."""
    name, prefix = described["metadata"]["name"], f"/clusters/{cluster}" if cluster else ""
    await hub.create(prefix + POLICIES, described)
    await hub.create(prefix + BINDINGS, binding(name, name, *actions, **spec))


def refused(answer: Answer, policy: str, message: str, binding: str = "") -> bool:
    """Whether a policy refused it with these words."""
    end = f"ValidatingAdmissionPolicy '{policy}' with binding '{binding or policy}' denied request: {message}"
    return answer.status >= 400 and answer.message.endswith(f" is forbidden: {end}")
