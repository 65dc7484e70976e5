"""Permission claims of APIBindings: what an export asks for, and what its consumer said to that."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

ACCEPTED, REJECTED = "Accepted", "Rejected"


def exported(binding: dict[str, Any]) -> list[dict[str, Any]]:
    return _claims(binding, "status", "exportPermissionClaims")


def answered(binding: dict[str, Any]) -> list[dict[str, Any]]:
    return _claims(binding, "spec", "permissionClaims")


def shown(claim: dict[str, Any]) -> str:
    """`configmaps`, or `deployments.apps`."""
    return ".".join(part for part in (claim.get("resource", ""), claim.get("group", "")) if part)


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two claims ask for the same, whatever was answered."""
    return _asked(one) == _asked(other)


def warnings(binding: dict[str, Any]) -> Iterator[str]:
    """What a consumer should know who has not answered yet."""
    name = binding.get("metadata", {}).get("name", "")
    for claim in exported(binding):
        answers = [answer for answer in answered(binding) if same(claim, answer)]
        if not answers:
            yield f"Warning: claim for {shown(claim)} exported but not specified on APIBinding {name}"
            yield "Add this claim to the APIBinding's Spec."
        if not any(answer.get("state") in (ACCEPTED, REJECTED) for answer in answers):
            yield f"Warning: claim for {shown(claim)} specified on APIBinding {name} but not accepted or rejected."


def with_accepted(binding: dict[str, Any]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """All answers once every exported claim is accepted, and the claims for which that is new."""
    answers = [dict(answer) for answer in answered(binding)]
    news = []
    for claim in exported(binding):
        answer = next((answer for answer in answers if same(claim, answer)), None)
        if answer is None:
            answer = dict(claim)
            answers.append(answer)
        if answer.get("state") != ACCEPTED:
            answer["state"] = ACCEPTED
            news.append(claim)
    return answers, news


def _claims(binding: dict[str, Any], part: str, field: str) -> list[dict[str, Any]]:
    found = (binding.get(part) or {}).get(field) or []
    return [claim for claim in found if isinstance(claim, dict)]


def _asked(claim: dict[str, Any]) -> tuple[Any, ...]:
    return (
        claim.get("group") or "",
        claim.get("resource") or "",
        bool(claim.get("all")),
        claim.get("identityHash") or "",
        claim.get("resourceSelector") or [],
    )
