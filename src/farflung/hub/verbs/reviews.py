"""Reviews: questions about who somebody is and what they may do.  They are answered and never stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from farflung.hub.auth.authenticate import Authenticator
from farflung.hub.auth.user import User, is_administrator
from farflung.hub.bodies import decode_object
from farflung.hub.http.messages import Answer, Request
from farflung.hub.options import write_options
from farflung.hub.verbs import respond
from farflung.hub.verbs.call import Call
from farflung.machinery.errors import ApiError, Obj, no_such_path

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
            "TokenReview": lambda user, spec: self._token(spec),
        }

    def answer(self, call: Call) -> Answer:
        answer = self._answers.get(call.resource.kind)
        if answer is None:
            raise no_such_path()
        options = write_options("CreateOptions", call.request.query)
        review = decode_object(call.request, call.kind.shape, options, call.shape).obj
        review |= {"kind": call.resource.kind, "apiVersion": call.resource.api_version}
        review["metadata"] = {"creationTimestamp": call.now() if call.resource.kind == "SelfSubjectReview" else None}
        review["status"] = answer(call.user, review.get("spec") or {})
        return respond.json_response(201, review)

    def _token(self, spec: Obj) -> Obj:
        request = Request("GET", "/", headers={"authorization": f"Bearer {spec.get('token', '')}"})
        try:
            user = self._authenticator.user_of(request)
        except ApiError:
            return {"user": {}, "error": "the token is not known here"}
        return {"authenticated": True, "user": who(user, {})["userInfo"]}


def who(user: User, spec: Obj) -> Obj:
    info: Obj = {"username": user.name}
    if user.uid:
        info["uid"] = user.uid
    return {"userInfo": info | {"groups": list(user.groups)}}


def subject(spec: Obj) -> User:
    return User(spec.get("user", ""), tuple(spec.get("groups") or ()))


def access(user: User) -> Obj:
    """Whoever is an administrator may do everything; nobody else may do anything."""
    return {"allowed": True} if is_administrator(user) else {"allowed": False, "reason": "not an administrator"}
