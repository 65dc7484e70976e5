"""Questions about who someone is."""

from __future__ import annotations

from typing import Final

from farflung.apis.group import Group

AUTHENTICATION: Final = Group("authentication.k8s.io", "v1", "io.k8s.api.authentication.v1.")

RESOURCES: Final = (
    AUTHENTICATION.virtual("selfsubjectreviews", "SelfSubjectReview"),
    AUTHENTICATION.virtual("tokenreviews", "TokenReview"),
)
