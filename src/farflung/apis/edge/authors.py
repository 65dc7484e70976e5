"""The author of a placement: the user who last wrote its spec.  The hub records authors, schedulers check them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from farflung.apis.edge.names import AUTHOR
from farflung.apis.kcp.names import NOT_CHOSEN, consuming_user
from farflung.machinery.errors import Obj

#: key in `extra` of the only logical cluster where a user has permissions
CLUSTER_EXTRA: Final = "authentication.kubernetes.io/cluster-name"


class Author(msgspec.Struct, frozen=True, omit_defaults=True):
    """What RBAC needs of the user, as of the write of the spec."""

    user: str
    groups: tuple[str, ...] = ()
    cluster: str = ""  #: the only logical cluster where the user has permissions; empty: all of them

    @property
    def annotation(self) -> str:
        return _encode(self).decode()

    def review_spec(self, cluster: str) -> Obj:
        """The user as in the spec of a SubjectAccessReview in a logical cluster."""
        seen = self.seen_in(cluster)
        spec: Obj = {"user": seen.user, "groups": list(seen.groups)}
        return spec | {"extra": {CLUSTER_EXTRA: [seen.cluster]}} if seen.cluster else spec

    def seen_in(self, cluster: str) -> Author:
        """The author as bindings in a logical cluster name it.  A user of another logical cluster has its name there,
        and none of the groups that a tenant can choose."""
        if self.cluster in ("", cluster):
            return self
        groups = tuple(group for group in self.groups if group in NOT_CHOSEN)
        return Author(consuming_user(self.user, self.cluster), groups)


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(Author).decode


def author_of(annotations: Mapping[str, Any]) -> Author | None:
    """None if the server recorded none."""
    try:
        found = _decode(annotations.get(AUTHOR, ""))
    except (msgspec.DecodeError, UnicodeEncodeError):
        return None
    return found if found.user else None
