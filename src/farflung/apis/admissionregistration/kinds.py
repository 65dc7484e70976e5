"""Webhook configurations and admission policies: resources and printer columns."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from farflung.apis.names import POLICIES_GROUP
from farflung.apis.printers import UNSET, age_of, name_of, part, selector_text
from farflung.apis.resource import Group, status
from farflung.machinery.errors import Obj
from farflung.machinery.table import AGE, NAME, Column, Printer


def webhook_cells(obj: Obj, now: datetime) -> list[Any]:
    return [name_of(obj), len(obj.get("webhooks") or ()), age_of(obj, now)]


WEBHOOKS: Final = Printer(
    (
        NAME,
        Column(
            "Webhooks",
            "integer",
            description="Webhooks indicates the number of webhooks registered in this configuration",
        ),
        AGE,
    ),
    webhook_cells,
)


def policy_cells(obj: Obj, now: datetime) -> list[Any]:
    spec = part(obj, "spec")
    kind = spec.get("paramKind")
    return [
        name_of(obj),
        len(spec.get("validations") or ()),
        f"{kind.get('apiVersion', '')}/{kind.get('kind', '')}" if kind else UNSET,
        age_of(obj, now),
    ]


POLICIES: Final = Printer(
    (
        NAME,
        Column(
            "Validations",
            "integer",
            description="Validations indicates the number of validation rules defined in this configuration",
        ),
        Column("ParamKind", description="ParamKind specifies the kind of resources used to parameterize this policy"),
        AGE,
    ),
    policy_cells,
)


def policy_binding_cells(obj: Obj, now: datetime) -> list[Any]:
    spec = part(obj, "spec")
    return [name_of(obj), spec.get("policyName", ""), parameter_text(part(spec, "paramRef")), age_of(obj, now)]


def parameter_text(reference: Obj) -> str:
    if reference.get("name"):
        return f"{reference.get('namespace') or '*'}/{reference['name']}"
    selector = reference.get("selector")
    return UNSET if selector is None else selector_text(selector)


POLICY_BINDINGS: Final = Printer(
    (
        NAME,
        Column(
            "PolicyName",
            description="PolicyName indicates the policy definition which the policy binding binded to",
        ),
        Column("ParamRef", description="ParamRef indicates the param resource which sets the configration param"),
        AGE,
    ),
    policy_binding_cells,
)


# --- Admission webhooks and policies --------------------------------------------------------------

ADMISSION: Final = Group(POLICIES_GROUP, "v1", "io.k8s.api.admissionregistration.v1.")

EXTENSIONS: Final = ("api-extensions",)

RESOURCES: Final = (
    ADMISSION.stored(
        "mutatingwebhookconfigurations",
        "MutatingWebhookConfiguration",
        printer=WEBHOOKS,
        namespaced=False,
        categories=EXTENSIONS,
    ),
    ADMISSION.stored(
        "validatingadmissionpolicies",
        "ValidatingAdmissionPolicy",
        printer=POLICIES,
        namespaced=False,
        categories=EXTENSIONS,
        subresources=(status("ValidatingAdmissionPolicy"),),
    ),
    ADMISSION.stored(
        "validatingadmissionpolicybindings",
        "ValidatingAdmissionPolicyBinding",
        printer=POLICY_BINDINGS,
        namespaced=False,
        categories=EXTENSIONS,
    ),
    ADMISSION.stored(
        "validatingwebhookconfigurations",
        "ValidatingWebhookConfiguration",
        printer=WEBHOOKS,
        namespaced=False,
        categories=EXTENSIONS,
    ),
)
