"""Questions about what someone may do."""

from __future__ import annotations

from typing import Final

from farflung.apis.group import Group

AUTHORIZATION: Final = Group("authorization.k8s.io", "v1", "io.k8s.api.authorization.v1.")

RESOURCES: Final = (
    AUTHORIZATION.virtual("localsubjectaccessreviews", "LocalSubjectAccessReview", namespaced=True),
    AUTHORIZATION.virtual("selfsubjectaccessreviews", "SelfSubjectAccessReview"),
    AUTHORIZATION.virtual("selfsubjectrulesreviews", "SelfSubjectRulesReview"),
    AUTHORIZATION.virtual("subjectaccessreviews", "SubjectAccessReview"),
)
