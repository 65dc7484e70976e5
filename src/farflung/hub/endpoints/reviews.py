"""Reviews of identity and access: SelfSubjectReview, TokenReview, SubjectAccessReview and others.  Never stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import accumulate
from typing import Final

from farflung.apis.names import SERVICE_ACCOUNT
from farflung.apis.reviews import validate_local_review, validate_review, validate_self_review
from farflung.http.messages import Answer
from farflung.hub.auth.authenticator import Authenticator
from farflung.hub.auth.authorizer import Authorizer
from farflung.hub.auth.escalation import ALL_RULES
from farflung.hub.auth.rbac import PolicyRule, aggregate
from farflung.hub.auth.service_account_tokens import CLUSTER
from farflung.hub.registry import respond
from farflung.hub.registry.bodies import decode_object
from farflung.hub.registry.call import Call, Handler
from farflung.hub.registry.pipeline import Write, manage_fields, manager_of, set_namespace
from farflung.hub.request.attributes import Attributes
from farflung.hub.request.options import write_options
from farflung.hub.request.user import User, is_administrator, user_info
from farflung.machinery.errors import FieldError, Obj, bad_request, invalid

#: reviews whose answer repeats nothing of the request
PLAIN: Final = frozenset({"SelfSubjectReview", "SelfSubjectRulesReview"})
MAX_TEXTS: Final = 20_000  #: texts of all rules in an answer
EMPTY: Final[Obj] = {"metadata": {}, "spec": {}}


class Reviews:
    def __init__(self, authenticator: Authenticator, authorizer: Authorizer) -> None:
        self._authenticator = authenticator
        self._authorizer = authorizer
        self._answers: Mapping[str, Callable[[Call, Obj], Obj]] = {
            "SelfSubjectReview": self._user,
            "SelfSubjectRulesReview": self._rules,
            "SelfSubjectAccessReview": self._own_access,
            "SubjectAccessReview": self._access,
            "LocalSubjectAccessReview": self._local_access,
            "TokenReview": self._token,
        }

    @property
    def handlers(self) -> Mapping[str, Handler]:
        """By kind of review."""
        return dict.fromkeys(self._answers, self._answer)

    def _answer(self, call: Call) -> Answer:
        answer = self._answers[call.resource.kind]
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

    def _user(self, call: Call, review: Obj) -> Obj:
        return {"userInfo": user_info(call.user)}

    def _token(self, call: Call, review: Obj) -> Obj:
        spec = review.get("spec") or {}
        token = spec.get("token", "")
        if not token:
            raise bad_request("token is required for TokenReview in authentication")
        found = self._authenticator.review(token, spec.get("audiences") or (), call.target.cluster)
        if found.user is None:
            return {"user": {}, "error": found.error}
        return {"authenticated": True, "user": user_info(found.user), "audiences": list(found.audiences)}

    def _own_access(self, call: Call, review: Obj) -> Obj:
        refuse(validate_self_review(review))
        return self._decided(call, call.user, review["spec"])

    def _access(self, call: Call, review: Obj) -> Obj:
        refuse(validate_review(review))
        return self._decided(call, subject(call, review["spec"]), review["spec"])

    def _local_access(self, call: Call, review: Obj) -> Obj:
        refuse(validate_local_review(review))
        return self._decided(call, subject(call, review["spec"]), review["spec"])

    def _decided(self, call: Call, user: User, spec: Obj) -> Obj:
        decision = self._authorizer.decide(call.target.cluster, user, attributes_in(spec))
        status: Obj = {"allowed": decision.allowed}
        return status | {"reason": decision.reason} if decision.reason else status

    def _rules(self, call: Call, review: Obj) -> Obj:
        """Everything that RBAC lets the user do in a namespace, up to a limit."""
        namespace = (review.get("spec") or {}).get("namespace", "")
        if not namespace:
            raise bad_request("no namespace on request")
        found, errors = self._authorizer.rules_of(call.target.cluster, call.user, namespace)
        if is_administrator(call.user):
            found = [*ALL_RULES, *found]
        sizes = accumulate(map(size_of, found))
        shown = [rule for rule, size in zip(found, sizes, strict=False) if size <= MAX_TEXTS]
        if len(shown) < len(found):
            errors = [*errors, f"only the first {len(shown)} of {len(found)} rules are shown"]
        status: Obj = {
            "resourceRules": [rule.as_resource_rule() for rule in shown if rule.resources],
            "nonResourceRules": [rule.as_path_rule() for rule in shown if rule.paths],
            "incomplete": len(shown) < len(found),
        }
        return status | {"evaluationError": aggregate(errors)} if errors else status


def size_of(rule: PolicyRule) -> int:
    return 1 + sum(map(len, (rule.verbs, rule.groups, rule.resources, rule.names, rule.paths)))


def refuse(errors: list[FieldError]) -> None:
    if errors:
        raise invalid("authorization.k8s.io", "", "", errors)


def subject(call: Call, spec: Obj) -> User:
    """The user of an access review.  `extra` names the only cluster where the user has permissions; a ServiceAccount is
    by default one of the request's cluster."""
    name = spec.get("user", "")
    own = (call.target.cluster,) if name.startswith(SERVICE_ACCOUNT) else ("",)
    cluster = ((spec.get("extra") or {}).get(CLUSTER) or own)[0]
    return User(name, tuple(spec.get("groups") or ()), spec.get("uid", ""), cluster=cluster)


def attributes_in(spec: Obj) -> Attributes:
    about = spec.get("resourceAttributes")
    if about is None:
        about = spec["nonResourceAttributes"]
        return Attributes(about.get("verb", ""), path=about.get("path", ""))
    parts = ("verb", "group", "resource", "subresource", "namespace", "name")
    return Attributes(*(about.get(part, "") for part in parts))
