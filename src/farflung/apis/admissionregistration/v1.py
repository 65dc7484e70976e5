"""Admission webhooks and policies."""

from __future__ import annotations

from typing import Final

from farflung.apis.admissionregistration import printers
from farflung.apis.group import Group, status

ADMISSION: Final = Group("admissionregistration.k8s.io", "v1", "io.k8s.api.admissionregistration.v1.")

EXTENSIONS: Final = ("api-extensions",)

RESOURCES: Final = (
    ADMISSION.stored(
        "mutatingwebhookconfigurations",
        "MutatingWebhookConfiguration",
        printer=printers.WEBHOOKS,
        namespaced=False,
        categories=EXTENSIONS,
    ),
    ADMISSION.stored(
        "validatingadmissionpolicies",
        "ValidatingAdmissionPolicy",
        printer=printers.POLICIES,
        namespaced=False,
        categories=EXTENSIONS,
        subresources=(status("ValidatingAdmissionPolicy"),),
    ),
    ADMISSION.stored(
        "validatingadmissionpolicybindings",
        "ValidatingAdmissionPolicyBinding",
        printer=printers.POLICY_BINDINGS,
        namespaced=False,
        categories=EXTENSIONS,
    ),
    ADMISSION.stored(
        "validatingwebhookconfigurations",
        "ValidatingWebhookConfiguration",
        printer=printers.WEBHOOKS,
        namespaced=False,
        categories=EXTENSIONS,
    ),
)
