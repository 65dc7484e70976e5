"""Admission webhooks and policies."""

from __future__ import annotations

from typing import Final

from farflung.apis.group import Group, status

ADMISSION: Final = Group("admissionregistration.k8s.io", "v1", "io.k8s.api.admissionregistration.v1.")

EXTENSIONS: Final = ("api-extensions",)

RESOURCES: Final = (
    ADMISSION.stored(
        "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", namespaced=False, categories=EXTENSIONS
    ),
    ADMISSION.stored(
        "validatingadmissionpolicies",
        "ValidatingAdmissionPolicy",
        namespaced=False,
        categories=EXTENSIONS,
        subresources=(status("ValidatingAdmissionPolicy"),),
    ),
    ADMISSION.stored(
        "validatingadmissionpolicybindings",
        "ValidatingAdmissionPolicyBinding",
        namespaced=False,
        categories=EXTENSIONS,
    ),
    ADMISSION.stored(
        "validatingwebhookconfigurations", "ValidatingWebhookConfiguration", namespaced=False, categories=EXTENSIONS
    ),
)
