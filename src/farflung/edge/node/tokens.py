"""Tokens of ServiceAccounts for the pods that run as them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from farflung.apis.names import SERVICE_ACCOUNTS
from farflung.edge.node.environment import Unavailable
from farflung.edge.node.payloads import TokenWanted
from farflung.edge.node.place import Place
from farflung.machinery.errors import Obj

FRESH: Final = 0.8  #: of its life, after which a token is replaced
LONGEST: Final = 24 * 3600.0  #: seconds, after which it is at any rate


@dataclass(frozen=True, slots=True)
class _Issued:
    token: str
    renew: float  #: when, on the monotonic clock


class Tokens:
    """Those of one pod: bound to it, and replaced before they end."""

    def __init__(self, place: Place, pod: Obj) -> None:
        self._place = place
        self._metadata = pod["metadata"]
        self._account = pod["spec"].get("serviceAccountName") or "default"
        self._issued: dict[TokenWanted, _Issued] = {}

    async def have(self, wanted: Iterable[TokenWanted]) -> None:
        """All of them, and none of them too old.  Raises ClientError."""
        now = self._place.env.monotonic()
        for one in sorted(wanted, key=lambda one: (one.audience, one.seconds)):
            issued = self._issued.get(one)
            if issued is None or now >= issued.renew:
                token = await self._request(one)
                self._issued[one] = _Issued(token, now + min(one.seconds * FRESH, LONGEST))

    def get(self, wanted: TokenWanted) -> str:
        issued = self._issued.get(wanted)
        if issued is None:
            raise Unavailable("there is no token yet")
        return issued.token

    @property
    def renewal(self) -> float | None:
        """Seconds until one of them has to be replaced."""
        moments = [issued.renew for issued in self._issued.values()]
        return max(0.0, min(moments) - self._place.env.monotonic()) if moments else None

    async def _request(self, wanted: TokenWanted) -> str:
        metadata = self._metadata
        spec: Obj = {
            "expirationSeconds": wanted.seconds,
            "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]},
        }
        if wanted.audience:
            spec["audiences"] = [wanted.audience]
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "metadata": {"name": self._account, "namespace": metadata["namespace"]},
            "spec": spec,
        }
        answer = await self._place.client.create(SERVICE_ACCOUNTS, request, metadata["namespace"], "token")
        token: str = answer["status"]["token"]
        return token
