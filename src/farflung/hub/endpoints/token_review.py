"""TokenReview: whose a token is, and what it is good for."""

from __future__ import annotations

from farflung.hub.auth.authenticator import Authenticator
from farflung.hub.request.user import User
from farflung.machinery.errors import Obj, bad_request


def token_status(authenticator: Authenticator, spec: Obj, cluster: str) -> Obj:
    """The status of a TokenReview in a cluster.  Raises ApiError if there is no token to review."""
    token = spec.get("token", "")
    if not token:
        raise bad_request("token is required for TokenReview in authentication")
    review = authenticator.review(token, spec.get("audiences") or (), cluster)
    if review.user is None:
        return {"user": {}, "error": review.error}
    return {"authenticated": True, "user": user_info(review.user), "audiences": list(review.audiences)}


def user_info(user: User) -> Obj:
    """Somebody, as the API tells it."""
    info: Obj = {"username": user.name}
    if user.uid:
        info["uid"] = user.uid
    if user.groups:
        info["groups"] = list(user.groups)
    if user.extra:
        info["extra"] = {name: list(values) for name, values in user.extra}
    return info
