"""Policies at work: a write is refused, or goes on, perhaps with warnings."""

from __future__ import annotations

from typing import Final

from farflung.hub.admission.policies.matching import CREATE, DELETE, UPDATE
from farflung.hub.admission.policies.registry import GROUP
from farflung.hub.options import WriteOptions
from farflung.hub.registry.call import Call
from farflung.machinery.errors import Obj

#: policies do not judge policies: one that refuses everything could never be removed
EXEMPT: Final = frozenset(
    {
        (GROUP, "validatingadmissionpolicies"),
        (GROUP, "validatingadmissionpolicybindings"),
        (GROUP, "mutatingadmissionpolicies"),
        (GROUP, "mutatingadmissionpolicybindings"),
    }
)


def check_new(call: Call, obj: Obj, options: WriteOptions, warnings: list[str]) -> None:
    """A new object, or what is created by a subresource.  Raises ApiError."""
    if call.tools.policies.of(call.target.cluster) is not None:
        review(call, CREATE, obj, None, shown(options), warnings)


def check_change(call: Call, new: Obj, old: Obj, options: WriteOptions, warnings: list[str]) -> None:
    if call.tools.policies.of(call.target.cluster) is None:
        return
    if call.target.subresource == "scale":
        assert call.kind.scaling is not None
        new, old = call.kind.scaling.scale(new), call.kind.scaling.scale(old)
    review(call, UPDATE, new, old, shown(options), warnings)


def check_deletion(call: Call, old: Obj, options: Obj, warnings: list[str]) -> None:
    """`options`: as the client sent them."""
    if call.tools.policies.of(call.target.cluster) is not None:
        review(call, DELETE, None, old, options, warnings)


def shown(options: WriteOptions) -> Obj:
    said: Obj = {"fieldValidation": options.field_validation}
    if options.field_manager:
        said["fieldManager"] = options.field_manager
    if options.dry_run:
        said["dryRun"] = ["All"]
    return said


def review(call: Call, operation: str, new: Obj | None, old: Obj | None, options: Obj, warnings: list[str]) -> None:
    policies = call.tools.policies.of(call.target.cluster)
    if policies is None or (call.resource.group, call.resource.plural) in EXEMPT:
        return
    hooks = policies.concerning(operation, call.resource, call.target.subresource)
    if hooks:
        from farflung.hub.admission.policies.review import Review  # a hub without policies need not load CEL
        from farflung.hub.admission.policies.session import Session

        request = Review(call, operation, new, old, options=options, dry_run=bool(options.get("dryRun")))
        Session(request, call, warnings).run(hooks)
