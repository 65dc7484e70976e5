"""See to it that mailboxes take machines: they have to serve Pods by the API in which those may be machines.

The binding stays when nothing is delivered there any more, because with it all Pods of the mailbox would go.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Final

from farflung.client.errors import AlreadyExists, NotFound
from farflung.client.rest import Client
from farflung.controllers.global_scheduler.binding import PODS
from farflung.controllers.mailbox.controller import BINDINGS
from farflung.machinery.errors import Obj

NAME: Final = "global-scheduler-pods"
EXPORT: Final = {"path": "root:compute", "name": "kubernetes"}
AGAIN: Final = 60.0  #: seconds after which somebody may have taken it away


class Furnishing:
    def __init__(self, workspace: Callable[[str], Client], monotonic: Callable[[], float]) -> None:
        """`workspace`: all of a logical cluster."""
        self._workspace = workspace
        self._monotonic = monotonic
        self._seen: dict[str, float] = {}  #: when which mailbox served Pods

    async def furnish(self, mailbox: str) -> None:
        """Raises ClientError."""
        now = self._monotonic()
        if now < self._seen.get(mailbox, -AGAIN) + AGAIN:
            return
        client = self._workspace(mailbox)
        try:
            await client.raw(f"{PODS.path('')}?limit=1")
        except NotFound:
            with contextlib.suppress(AlreadyExists):
                await client.create(BINDINGS, binding())
        else:
            self._seen[mailbox] = now


def binding() -> Obj:
    spec = {"reference": {"export": EXPORT}}
    return {"apiVersion": BINDINGS.api_version, "kind": BINDINGS.kind, "metadata": {"name": NAME}, "spec": spec}
