"""Who may approve requests for certificates, and who may answer them: `approve` and `sign` on the name of a signer."""

from __future__ import annotations

from typing import Final

from farflung.hub.auth.attributes import Attributes
from farflung.hub.auth.authorizer import Authorizer
from farflung.hub.auth.user import User
from farflung.hub.routing.target import Target
from farflung.machinery.errors import Obj, forbidden, go_quote

GROUP: Final = "certificates.k8s.io"


def check_signer(authorizer: Authorizer, user: User, target: Target, new: Obj, old: Obj) -> None:
    """Raises 403 for a change of a CertificateSigningRequest that is not for this user to make."""
    if target.group != GROUP or target.plural != "certificatesigningrequests":
        return
    verb = "approve" if target.subresource == "approval" else "sign" if signs(target, new, old) else ""
    signer = (old.get("spec") or {}).get("signerName", "")
    if verb and not is_permitted(authorizer, target.cluster, user, verb, signer):
        why = f"user not permitted to {verb} requests with signerName {go_quote(signer)}"
        raise forbidden(GROUP, target.plural, target.name, why)


def signs(target: Target, new: Obj, old: Obj) -> bool:
    after, before = new.get("status") or {}, old.get("status") or {}
    changed = any(after.get(part) != before.get(part) for part in ("certificate", "conditions"))
    return target.subresource == "status" and changed


def is_permitted(authorizer: Authorizer, cluster: str, user: User, verb: str, signer: str) -> bool:
    """A signer may be named as it is, or with all others of its domain: `example.com/*`."""
    domain = signer.partition("/")[0]
    return any(
        authorizer.decide(cluster, user, Attributes(verb, GROUP, "signers", name=name)).allowed
        for name in (signer, f"{domain}/*")
    )
