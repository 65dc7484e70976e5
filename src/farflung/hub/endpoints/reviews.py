"""Reviews: questions about who somebody is and what they may do.  They are answered and never stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from farflung.apis.reviews import validate_local_review, validate_review, validate_self_review
from farflung.http.messages import Answer
from farflung.hub.auth.authenticator import Authenticator
from farflung.hub.auth.escalation import FULL_AUTHORITY
from farflung.hub.auth.rbac.policy import aggregate
from farflung.hub.auth.service_account_tokens import CLUSTER
from farflung.hub.endpoints.token_review import token_status, user_info
from farflung.hub.registry import respond
from farflung.hub.registry.bodies import decode_object
from farflung.hub.registry.call import Call
from farflung.hub.registry.pipeline import Write, manage_fields, manager_of, set_namespace
from farflung.hub.request.attributes import Attributes
from farflung.hub.request.options import write_options
from farflung.hub.request.user import SERVICE_ACCOUNT, User, is_administrator
from farflung.machinery.errors import FieldError, Obj, bad_request, invalid, no_such_path

#: reviews that say who somebody is; of what was sent nothing comes back
PLAIN: Final = frozenset({"SelfSubjectReview", "SelfSubjectRulesReview"})


class Reviews:
    def __init__(self, authenticator: Authenticator) -> None:
        self._authenticator = authenticator
        self._answers: Mapping[str, Callable[[Call, Obj], Obj]] = {
            "SelfSubjectReview": who,
            "SelfSubjectRulesReview": rules,
            "SelfSubjectAccessReview": own_access,
            "SubjectAccessReview": access,
            "LocalSubjectAccessReview": local_access,
            "TokenReview": self._token,
        }

    def answer(self, call: Call) -> Answer:
        answer = self._answers.get(call.resource.kind)
        if answer is None:
            raise no_such_path()
        options = write_options("CreateOptions", call.request.query)
        review = decode_object(call.request, call.kind.shape, options, call.shape).obj
        metadata = review.setdefault("metadata", {})
        set_namespace(call, metadata)
        review.pop("status", None)
        status = answer(call, review)
        if call.resource.kind in PLAIN:
            review = {"metadata": {"creationTimestamp": call.now()}} if "userInfo" in status else EMPTY
        else:
            manage_fields(Write(call, options, review, manager=manager_of(call, options)))
        identity = {"kind": call.resource.kind, "apiVersion": call.resource.api_version}
        return respond.json_response(201, identity | review | {"status": status})

    def _token(self, call: Call, review: Obj) -> Obj:
        return token_status(self._authenticator, review.get("spec") or {}, call.target.cluster)


EMPTY: Final[Obj] = {"metadata": {}, "spec": {}}


def who(call: Call, review: Obj) -> Obj:
    return {"userInfo": user_info(call.user)}


# --- access ---------------------------------------------------------------------------------------


def own_access(call: Call, review: Obj) -> Obj:
    refuse(validate_self_review(review))
    return decided(call, call.user, review["spec"])


def access(call: Call, review: Obj) -> Obj:
    refuse(validate_review(review))
    return decided(call, subject(call, review["spec"]), review["spec"])


def local_access(call: Call, review: Obj) -> Obj:
    refuse(validate_local_review(review))
    return decided(call, subject(call, review["spec"]), review["spec"])


def refuse(errors: list[FieldError]) -> None:
    if errors:
        raise invalid("authorization.k8s.io", "", "", errors)


def subject(call: Call, spec: Obj) -> User:
    """Who is asked about.  A ServiceAccount is one of the cluster where it is asked, unless another is named."""
    name, cluster = spec.get("user", ""), ""
    if name.startswith(SERVICE_ACCOUNT):
        named = (spec.get("extra") or {}).get(CLUSTER) or (call.target.cluster,)
        cluster = named[0]
    return User(name, tuple(spec.get("groups") or ()), spec.get("uid", ""), cluster=cluster)


def decided(call: Call, user: User, spec: Obj) -> Obj:
    decision = call.tools.authorizer.decide(call.target.cluster, user, asked(spec))
    status: Obj = {"allowed": decision.allowed}
    return status | {"reason": decision.reason} if decision.reason else status


def asked(spec: Obj) -> Attributes:
    about = spec.get("resourceAttributes")
    if about is None:
        about = spec["nonResourceAttributes"]
        return Attributes(about.get("verb", ""), path=about.get("path", ""))
    parts = ("verb", "group", "resource", "subresource", "namespace", "name")
    return Attributes(*(about.get(part, "") for part in parts))


# --- rules ----------------------------------------------------------------------------------------


def rules(call: Call, review: Obj) -> Obj:
    """All that the sender may do in a namespace."""
    namespace = (review.get("spec") or {}).get("namespace", "")
    if not namespace:
        raise bad_request("no namespace on request")
    found, errors = call.tools.authorizer.rules_of(call.target.cluster, call.user, namespace)
    if is_administrator(call.user):
        found = [*FULL_AUTHORITY, *found]
    status: Obj = {
        "resourceRules": [rule.as_resource_rule() for rule in found if rule.resources],
        "nonResourceRules": [rule.as_path_rule() for rule in found if rule.paths],
        "incomplete": False,
    }
    return status | {"evaluationError": aggregate(errors)} if errors else status
