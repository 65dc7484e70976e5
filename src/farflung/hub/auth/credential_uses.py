"""The last uses of old signing keys and certificate authorities, so that administrators know when to revoke them."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Final

import msgspec

from farflung.hub.request.user import User

MAX_USERS: Final = 100  #: of one key or authority


class IssuerUse(msgspec.Struct):
    """The use of tokens or certificates that one key or authority signed."""

    last: datetime
    users: dict[str, datetime] = {}  #: the latest ones, in the order of their last use


class CredentialUses(msgspec.Struct):
    """The content of a file, which survives restarts."""

    issuers: dict[str, IssuerUse] = {}  #: by the id of the key or authority
    refusals: int = 0  #: TLS handshakes that clients ended because they do not trust the server certificate
    last_refusal: datetime | None = None

    def note(self, issuer: str, user: User, now: datetime) -> None:
        use = self.issuers.get(issuer)
        if use is None:
            use = self.issuers[issuer] = IssuerUse(now)
        use.last = now
        name = f"{user.cluster}:{user.name}" if user.cluster else user.name
        use.users.pop(name, None)
        use.users[name] = now
        if len(use.users) > MAX_USERS:
            del use.users[next(iter(use.users))]

    def note_refusal(self, now: datetime) -> None:
        self.refusals += 1
        self.last_refusal = now

    def forget_others(self, issuers: Collection[str]) -> None:
        """Keep only the uses of these."""
        self.issuers = {issuer: use for issuer, use in self.issuers.items() if issuer in issuers}
