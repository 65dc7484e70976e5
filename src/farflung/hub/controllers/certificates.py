"""CertificateSigningRequests: signs approved requests for the hub's signers, and deletes old requests."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509

from farflung.http.certificates import CertificateHolder
from farflung.hub.auth.certificate_requests import (
    SIGNERS,
    SigningRefused,
    check_signer_cluster,
    parse_request,
    sign_request,
)
from farflung.hub.catalog import objects
from farflung.hub.catalog.objects import cluster_in
from farflung.hub.controllers.loopback import LoopbackClient, object_path
from farflung.hub.controllers.reconcile_queue import ReconcileQueue
from farflung.hub.controllers.stored_kinds import StoredKinds
from farflung.machinery.errors import Obj
from farflung.machinery.times import TimeError, format_seconds, parse
from farflung.store.base import Change, Entry, Store, Subscription

WORKERS: Final = 2
REQUESTS: Final = "/certificates.k8s.io/certificatesigningrequests/"
PENDING: Final = timedelta(hours=24)  #: how long a request is kept without a decision …
DECIDED: Final = timedelta(hours=1)  #: … and after it was denied, issued or failed


class CertificateController:
    def __init__(
        self,
        store: Store,
        kinds: StoredKinds,
        client: LoopbackClient,
        certificates: CertificateHolder,
        clock: Callable[[], datetime],
    ) -> None:
        self._store = store
        self._client = client
        self._certificates = certificates
        self._clock = clock
        self._resource = kinds.builtin(REQUESTS)
        self._subscription: Subscription | None = None
        self._expiry: dict[str, asyncio.TimerHandle] = {}
        self.queue: ReconcileQueue[str] = ReconcileQueue("signing", self._reconcile, workers=WORKERS)

    def start(self) -> None:
        self._subscription = self._store.subscribe(REQUESTS, self._on_changes)
        for entry in self._store.list(REQUESTS).entries:
            self.queue.add(entry.key)

    def stop(self) -> None:
        if self._subscription is not None:
            self._subscription.cancel()
        for timer in self._expiry.values():
            timer.cancel()
        self._expiry.clear()

    def _on_changes(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.entry is not None:
                self.queue.add(change.key)
            elif timer := self._expiry.pop(change.key, None):
                timer.cancel()

    async def _reconcile(self, key: str) -> None:
        entry = self._store.get(key)
        if entry is None:
            return
        request = objects.decode(entry)
        if "deletionTimestamp" in request["metadata"]:
            return
        expiry = min(expiries(request), default=None)
        if expiry is not None and expiry <= self._clock():
            path = object_path(self._resource, key)
            await self._client.delete(path, policy="Background", uid=request["metadata"]["uid"])
            return
        self._set_timer(key, expiry)
        if is_to_be_signed(request):
            await self._sign(entry, request)

    def _set_timer(self, key: str, expiry: datetime | None) -> None:
        if timer := self._expiry.pop(key, None):
            timer.cancel()
        if expiry is not None:
            seconds = max((expiry - self._clock()).total_seconds(), 0)
            self._expiry[key] = asyncio.get_running_loop().call_later(seconds, self.queue.add, key)

    async def _sign(self, entry: Entry, request: Obj) -> None:
        now = self._clock()
        status: Obj
        try:
            status = {"certificate": base64.b64encode(self._signed(entry.key, request["spec"], now)).decode()}
        except SigningRefused as error:
            status = {"conditions": [*conditions_of(request), failure(str(error), format_seconds(now))]}
        path = object_path(self._resource, entry.key) + "/status"
        await self._client.patch(path, {"status": status}, uid=request["metadata"]["uid"], revision=entry.revision)

    def _signed(self, key: str, spec: Obj, now: datetime) -> bytes:
        asked, usages = parse_request(spec["request"]), spec.get("usages") or ()
        check_signer_cluster(spec["signerName"], cluster_in(key))
        SIGNERS[spec["signerName"]](asked, usages)
        authority, lifetime = self._certificates.current, spec.get("expirationSeconds")
        return sign_request(authority, asked, usages, lifetime, cluster_in(key), now)


# --- requests -------------------------------------------------------------------------------------


def conditions_of(request: Obj) -> list[Obj]:
    conditions: list[Obj] = (request.get("status") or {}).get("conditions") or []
    return conditions


def certificate_of(request: Obj) -> str:
    """In base64; empty if there is none."""
    certificate: str = (request.get("status") or {}).get("certificate") or ""
    return certificate


def is_to_be_signed(request: Obj) -> bool:
    if request["spec"].get("signerName") not in SIGNERS or certificate_of(request):
        return False
    types = {condition.get("type") for condition in conditions_of(request)}
    return "Approved" in types and types.isdisjoint(("Denied", "Failed"))


def failure(message: str, now: str) -> Obj:
    return {
        "type": "Failed",
        "status": "True",
        "reason": "SignerValidationFailure",
        "message": message,
        "lastUpdateTime": now,
        "lastTransitionTime": now,
    }


def expiries(request: Obj) -> Iterator[datetime]:
    """The times at which a request may be deleted.  An approved request that another signer must sign has none."""
    conditions, certificate = conditions_of(request), certificate_of(request)
    if not conditions:
        yield parse(request["metadata"]["creationTimestamp"]) + PENDING
    for condition in conditions:
        if condition.get("type") in ("Denied", "Failed") or (condition.get("type") == "Approved" and certificate):
            if expiry := expiry_after(condition.get("lastUpdateTime")):
                yield expiry
            if condition.get("type") == "Approved" and (expiry := expiry_of(certificate)):
                yield expiry


def expiry_after(decided: str | None) -> datetime | None:
    """None if the time is missing, invalid or too late."""
    try:
        return parse(decided) + DECIDED if decided else None
    except (TimeError, OverflowError):
        return None


def expiry_of(certificate: str) -> datetime | None:
    try:
        return x509.load_pem_x509_certificate(base64.b64decode(certificate)).not_valid_after_utc
    except ValueError:
        return None
