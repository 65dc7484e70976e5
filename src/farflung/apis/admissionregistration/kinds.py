"""Webhook configurations and admission policies: resources and printer columns."""

from __future__ import annotations

from typing import Final

from farflung.apis.names import POLICIES_GROUP
from farflung.apis.printers import AGE, NAME, UNSET, column, field, part, printer, selector_text
from farflung.apis.resource import Group, status
from farflung.machinery.errors import Obj


def parameter_kind(policy: Obj) -> str:
    kind = part(policy, "spec").get("paramKind")
    return f"{kind.get('apiVersion', '')}/{kind.get('kind', '')}" if kind else UNSET


def parameter_text(binding: Obj) -> str:
    reference = part(binding, "spec", "paramRef")
    if reference.get("name"):
        return f"{reference.get('namespace') or '*'}/{reference['name']}"
    selector = reference.get("selector")
    return UNSET if selector is None else selector_text(selector)


WEBHOOKS: Final = printer(
    "admissionregistration.v1.ValidatingWebhookConfiguration",
    NAME,
    column(
        "Webhooks",
        "Webhooks indicates the number of webhooks registered in this configuration",
        lambda obj: len(obj.get("webhooks") or ()),
        type="integer",
    ),
    AGE,
)
POLICIES: Final = printer(
    "admissionregistration.v1.ValidatingAdmissionPolicy",
    NAME,
    column(
        "Validations",
        "Validations indicates the number of validation rules defined in this configuration",
        lambda policy: len(part(policy, "spec").get("validations") or ()),
        type="integer",
    ),
    column("ParamKind", "ParamKind specifies the kind of resources used to parameterize this policy", parameter_kind),
    AGE,
)
POLICY_BINDINGS: Final = printer(
    "admissionregistration.v1.ValidatingAdmissionPolicyBinding",
    NAME,
    field(
        "PolicyName",
        "spec.policyName",
        description="PolicyName indicates the policy definition which the policy binding binded to",
    ),
    column("ParamRef", "ParamRef indicates the param resource which sets the configration param", parameter_text),
    AGE,
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
