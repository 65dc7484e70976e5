"""CertificateSigningRequests: those that were approved are signed by the hub's authority, if they ask for what it
signs, and all of them go after a while."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509

from farflung.http.certificates import Certificates
from farflung.hub import objects
from farflung.hub.auth.certificate_requests import SIGNERS, Unsigned, check_place, parse_request, sign_request
from farflung.hub.controllers.loopback import Inside, object_path
from farflung.hub.controllers.reconcile_queue import Work
from farflung.hub.controllers.stored_kinds import KeptKinds
from farflung.hub.objects import cluster_in
from farflung.machinery.errors import Obj
from farflung.machinery.times import TimeError, format_seconds, parse
from farflung.store.base import Change, Entry, Store, Subscription

WORKERS: Final = 2
REQUESTS: Final = "/certificates.k8s.io/certificatesigningrequests/"
PENDING: Final = timedelta(hours=24)  #: after it was made, a request that nobody decided on goes …
DECIDED: Final = timedelta(hours=1)  #: … and this long after the decision one that was denied, issued or failed


class Signing:
    def __init__(
        self, store: Store, kinds: KeptKinds, inside: Inside, authority: Certificates, clock: Callable[[], datetime]
    ) -> None:
        self._store = store
        self._inside = inside
        self._authority = authority
        self._clock = clock
        self._resource = kinds.builtin(REQUESTS)
        self._subscription: Subscription | None = None
        self._ends: dict[str, asyncio.TimerHandle] = {}  #: key → when it will be time for it to go
        self.work: Work[str] = Work("signing", self._look, workers=WORKERS)

    def start(self) -> None:
        self._subscription = self._store.subscribe(REQUESTS, self._hear)
        for entry in self._store.list(REQUESTS).entries:
            self.work.add(entry.key)

    def stop(self) -> None:
        if self._subscription is not None:
            self._subscription.cancel()
        for timer in self._ends.values():
            timer.cancel()
        self._ends.clear()

    def _hear(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.entry is not None:
                self.work.add(change.key)
            elif timer := self._ends.pop(change.key, None):
                timer.cancel()

    async def _look(self, key: str) -> None:
        entry = self._store.get(key)
        if entry is None:
            return
        request = objects.decode(entry)
        if "deletionTimestamp" in request["metadata"]:
            return
        end = end_of(request)
        if end is not None and end <= self._clock():
            path = object_path(self._resource, key)
            await self._inside.delete(path, policy="Background", uid=request["metadata"]["uid"])
            return
        self._wait(key, end)
        if is_to_be_signed(request):
            await self._sign(entry, request)

    def _wait(self, key: str, end: datetime | None) -> None:
        if timer := self._ends.pop(key, None):
            timer.cancel()
        if end is not None:
            seconds = max((end - self._clock()).total_seconds(), 0)
            self._ends[key] = asyncio.get_running_loop().call_later(seconds, self.work.add, key)

    async def _sign(self, entry: Entry, request: Obj) -> None:
        now = self._clock()
        status: Obj
        try:
            status = {"certificate": base64.b64encode(self._signed(entry.key, request["spec"], now)).decode()}
        except Unsigned as error:
            status = {"conditions": [*conditions_of(request), failure(str(error), format_seconds(now))]}
        path = object_path(self._resource, entry.key) + "/status"
        await self._inside.patch(path, {"status": status}, uid=request["metadata"]["uid"], revision=entry.revision)

    def _signed(self, key: str, spec: Obj, now: datetime) -> bytes:
        asked, usages = parse_request(spec["request"]), spec.get("usages") or ()
        check_place(spec["signerName"], cluster_in(key))
        SIGNERS[spec["signerName"]](asked, usages)
        return sign_request(self._authority, asked, usages, spec.get("expirationSeconds"), cluster_in(key), now)


# --- what a request is ----------------------------------------------------------------------------


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


def end_of(request: Obj) -> datetime | None:
    """When it is time for a request to go; None: never, because somebody else has still to sign it."""
    return min(ends_of(request), default=None)


def ends_of(request: Obj) -> Iterator[datetime]:
    conditions, certificate = conditions_of(request), certificate_of(request)
    if not conditions:
        yield parse(request["metadata"]["creationTimestamp"]) + PENDING
    for condition in conditions:
        if condition.get("type") in ("Denied", "Failed") or (condition.get("type") == "Approved" and certificate):
            if end := end_after(condition.get("lastUpdateTime")):
                yield end
            if condition.get("type") == "Approved" and (expiry := expiry_of(certificate)):
                yield expiry


def end_after(decided: str | None) -> datetime | None:
    """None if whoever decided said no time, or the last one that there is."""
    try:
        return parse(decided) + DECIDED if decided else None
    except (TimeError, OverflowError):
        return None


def expiry_of(certificate: str) -> datetime | None:
    try:
        return x509.load_pem_x509_certificate(base64.b64decode(certificate)).not_valid_after_utc
    except ValueError:
        return None
