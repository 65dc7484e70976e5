"""Reviews: questions about who somebody is and what they may do.  They are answered and never stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from farflung.hub.auth.authenticate import Authenticator
from farflung.hub.auth.user import User, is_administrator
from farflung.hub.bodies import decode_object
from farflung.hub.http.messages import Answer
from farflung.hub.options import write_options
from farflung.hub.verbs import respond
from farflung.hub.verbs.call import Call
from farflung.hub.verbs.token_review import token_status, user_info
from farflung.machinery.errors import Obj, no_such_path

EVERYTHING: Final = {
    "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
    "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
    "incomplete": False,
}
NOTHING: Final = {"resourceRules": [], "nonResourceRules": [], "incomplete": False}


class Reviews:
    def __init__(self, authenticator: Authenticator) -> None:
        self._authenticator = authenticator
        self._answers: Mapping[str, Callable[[User, Obj], Obj]] = {
            "SelfSubjectReview": who,
            "SelfSubjectAccessReview": lambda user, spec: access(user),
            "SelfSubjectRulesReview": lambda user, spec: EVERYTHING if is_administrator(user) else NOTHING,
            "SubjectAccessReview": lambda user, spec: access(subject(spec)),
            "LocalSubjectAccessReview": lambda user, spec: access(subject(spec)),
        }

    def answer(self, call: Call) -> Answer:
        answer = self._token(call) if call.resource.kind == "TokenReview" else self._answers.get(call.resource.kind)
        if answer is None:
            raise no_such_path()
        options = write_options("CreateOptions", call.request.query)
        review = decode_object(call.request, call.kind.shape, options, call.shape).obj
        review |= {"kind": call.resource.kind, "apiVersion": call.resource.api_version}
        review["metadata"] = {"creationTimestamp": call.now() if call.resource.kind == "SelfSubjectReview" else None}
        review["status"] = answer(call.user, review.get("spec") or {})
        return respond.json_response(201, review)

    def _token(self, call: Call) -> Callable[[User, Obj], Obj]:
        return lambda user, spec: token_status(self._authenticator, spec, call.target.cluster)


def who(user: User, spec: Obj) -> Obj:
    return {"userInfo": user_info(user)}


def subject(spec: Obj) -> User:
    return User(spec.get("user", ""), tuple(spec.get("groups") or ()))


def access(user: User) -> Obj:
    """Whoever is an administrator may do everything; nobody else may do anything."""
    return {"allowed": True} if is_administrator(user) else {"allowed": False, "reason": "not an administrator"}
