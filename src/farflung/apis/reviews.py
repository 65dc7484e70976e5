"""Reviews of authentication.k8s.io and authorization.k8s.io, which are answered and never stored."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from farflung.apis.names import AUTHENTICATION_GROUP
from farflung.apis.resource import Group
from farflung.apis.rows import Each, ForbiddenField, Optional, Required, Table, When
from farflung.apis.validation import Errors
from farflung.machinery.errors import FieldError, Obj, invalid_value, required

AUTHENTICATION: Final = Group(AUTHENTICATION_GROUP, "v1", "io.k8s.api.authentication.v1.")
AUTHORIZATION: Final = Group("authorization.k8s.io", "v1", "io.k8s.api.authorization.v1.")

RESOURCES: Final = (
    AUTHENTICATION.virtual("selfsubjectreviews", "SelfSubjectReview"),
    AUTHENTICATION.virtual("tokenreviews", "TokenReview"),
    AUTHORIZATION.virtual("localsubjectaccessreviews", "LocalSubjectAccessReview", namespaced=True),
    AUTHORIZATION.virtual("selfsubjectaccessreviews", "SelfSubjectAccessReview"),
    AUTHORIZATION.virtual("selfsubjectrulesreviews", "SelfSubjectRulesReview"),
    AUTHORIZATION.virtual("subjectaccessreviews", "SubjectAccessReview"),
)

# --- validation of access reviews -----------------------------------------------------------------

RESOURCE: Final = "spec.resourceAttributes"
PATH: Final = "spec.nonResourceAttributes"


def validate_self_review(review: Obj) -> list[FieldError]:
    errors = _check_question(review.get("spec") or {})
    _check_metadata(review["metadata"], errors)
    return errors


def validate_review(review: Obj) -> list[FieldError]:
    spec = review.get("spec") or {}
    errors = _check_question(spec)
    if not spec.get("user") and not spec.get("groups"):
        errors.insert(
            next((at for at, error in enumerate(errors) if "Selector" in error.field), len(errors)),
            invalid_value("spec.user", "", "at least one of user or group must be specified"),
        )
    _check_metadata(review["metadata"], errors)
    return errors


def validate_local_review(review: Obj) -> list[FieldError]:
    spec, metadata = review.get("spec") or {}, review["metadata"]
    errors = validate_review(review | {"metadata": _without(metadata, ("namespace",))})
    namespace = (spec.get("resourceAttributes") or {}).get("namespace", "")
    if spec.get("resourceAttributes") is not None and namespace != metadata.get("namespace", ""):
        errors.append(invalid_value(f"{RESOURCE}.namespace", namespace, "must match metadata.namespace"))
    if spec.get("nonResourceAttributes") is not None:
        errors.append(invalid_value(PATH, _shown_path(spec), "disallowed on this kind of request"))
    return errors


def _without(metadata: Obj, names: Iterable[str]) -> Obj:
    return {name: value for name, value in metadata.items() if name not in names}


def _check_metadata(metadata: Obj, errors: Errors) -> None:
    if present := _without(metadata, ("managedFields", "creationTimestamp")):
        errors.append(invalid_value("metadata", present, "must be empty"))


def _check_question(spec: Obj) -> Errors:
    errors: Errors = []
    resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if resource is not None and path is not None:
        errors.append(
            invalid_value(PATH, _shown_path(spec), "cannot be specified in combination with resourceAttributes")
        )
    if resource is None and path is None:
        why = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        errors.append(invalid_value(RESOURCE, None, why))
    for part in ("fieldSelector", "labelSelector"):
        if (selector := (resource or {}).get(part)) is not None:
            _check_selector(selector, f"{RESOURCE}.{part}", errors)
    return errors


def _shown_path(spec: Obj) -> Obj:
    """The value for error messages, with the names of Go's fields."""
    path = spec["nonResourceAttributes"]
    return {"Path": path.get("path", ""), "Verb": path.get("verb", "")}


def _check_selector(selector: Obj, path: str, errors: Errors) -> None:
    raw, requirements = selector.get("rawSelector", ""), selector.get("requirements") or ()
    if raw and requirements:
        why = "may not specified at the same time as requirements"
        errors.append(invalid_value(f"{path}.rawSelector", raw, why))
    if not raw and not requirements:
        why = f"when {path} is specified, requirements or rawSelector is required"
        errors.append(required(f"{path}.requirements", why))
    REQUIREMENTS(selector, path, errors)


#: operators that are not known are of newer clients, and mean nothing here
REQUIREMENTS: Final = Table(
    Each(
        "requirements",
        When(
            "operator",
            ("In", "NotIn"),
            Required("values", detail="must be specified when `operator` is 'In' or 'NotIn'"),
        ),
        When(
            "operator",
            ("Exists", "DoesNotExist"),
            Optional("values", ForbiddenField("may not be specified when `operator` is 'Exists' or 'DoesNotExist'")),
        ),
        Required("key", detail="must be specified"),
    )
)
