"""get of `pods/NAME/log`: the output of a container."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Protocol

from farflung.http.messages import Answer, Sink, Stream
from farflung.hub.catalog import objects
from farflung.hub.registry.call import Call
from farflung.hub.request.options import integer
from farflung.hub.request.target import Query, is_true
from farflung.machinery import times
from farflung.machinery.errors import FieldError, Obj, bad_request, field_forbidden, go_quote, invalid, invalid_value

CONTENT_TYPE: Final = "text/plain"
SPECS: Final = ("containers", "initContainers", "ephemeralContainers")
STATUSES: Final = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
#: reason → the kubelet's message
WAITING: Final = {
    "ErrImagePull": "image can't be pulled",
    "ImagePullBackOff": "trying and failing to pull image",
}

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LogOptions:
    """Which lines of what one container of a pod has printed."""

    pod_uid: str
    container: str
    attempt: int  #: number of earlier starts of the container
    follow: bool = False
    tail: int | None = None  #: only this many last lines
    since: datetime | None = None
    timestamps: bool = False
    limit: int | None = None  #: bytes


class Nodes(Protocol):
    def logs(self, node: str, wanted: LogOptions, ended: Callable[[], bool]) -> AsyncIterator[bytes]:
        """The lines, in pieces of any size.  With `follow` also later ones, until `ended` returns True."""


def get_log(nodes: Nodes, call: Call) -> Answer:
    """As upstream, validates the query before it reads the pod."""
    pod = objects.decode(call.found())
    wanted = log_options(call.target.name, call.query, call.tools.clock())
    container = container_of(pod, call.query.get("container", ""))
    node = pod.get("spec", {}).get("nodeName", "")
    if not node:
        return Stream(lambda sink: sink.close(), lambda: None, content_type=CONTENT_TYPE)
    previous = is_true(call.query.get("previous"))
    attempt = attempt_of(pod, container, previous=previous)
    about = wanted(pod["metadata"]["uid"], container, attempt)
    pieces = nodes.logs(node, about, ended(call, about, previous=previous))
    pump = LogStream(pieces, f"{call.target.namespace}/{call.target.name}")
    return Stream(pump.start, pump.stop, content_type=CONTENT_TYPE)


# --- options --------------------------------------------------------------------------------------


def log_options(name: str, query: Query, now: datetime) -> Callable[[str, str, int], LogOptions]:
    """What the query says of any container.  Raises ApiError."""
    tail, limit = number(query, "tailLines"), number(query, "limitBytes")
    seconds, time = number(query, "sinceSeconds"), query.get("sinceTime", "")
    errors: list[FieldError] = []
    if tail is not None and tail < 0:
        errors.append(invalid_value("tailLines", tail, "must be greater than or equal to 0"))
    if limit is not None and limit < 1:
        errors.append(invalid_value("limitBytes", limit, "must be greater than 0"))
    if seconds is not None and time:
        why = "at most one of `sinceTime` or `sinceSeconds` may be specified"
        errors.append(field_forbidden("sinceSeconds", why))
    elif seconds is not None and seconds < 1:
        errors.append(invalid_value("sinceSeconds", seconds, "must be greater than 0"))
    since = moment(time) if time else None
    if errors:
        raise invalid("", "PodLogOptions", name, errors)
    if seconds is not None:
        since = ago(now, seconds)
    follow, timestamps = is_true(query.get("follow")), is_true(query.get("timestamps"))
    return lambda uid, container, attempt: LogOptions(uid, container, attempt, follow, tail, since, timestamps, limit)


def number(query: Query, name: str) -> int | None:
    return integer(query[name]) if query.get(name) else None


def moment(text: str) -> datetime:
    try:
        return times.parse(text)
    except times.TimeError as error:
        raise bad_request(str(error)) from None


def ago(now: datetime, seconds: int) -> datetime | None:
    """None for a time before the first date."""
    try:
        return now - timedelta(seconds=seconds)
    except OverflowError:
        return None


# --- container ------------------------------------------------------------------------------------


def container_of(pod: Obj, name: str) -> str:
    """The requested container; by default the only one."""
    spec, pod_name = pod.get("spec", {}), pod["metadata"]["name"]
    if name:
        if not any(one["name"] == name for part in SPECS for one in spec.get(part) or ()):
            raise bad_request(f"container {name} is not valid for pod {pod_name}")
        return name
    names = names_of(spec, "containers")
    if len(names) == 1:
        return names[0]
    why = f"a container name must be specified for pod {pod_name}"
    if names:
        why += f", choose one of: [{' '.join(names)}]"
    if initial := names_of(spec, "initContainers"):
        why += f" or one of the init containers: [{' '.join(initial)}]"
    raise bad_request(why)


def names_of(spec: Obj, part: str) -> list[str]:
    return [one["name"] for one in spec.get(part) or ()]


def attempt_of(pod: Obj, container: str, *, previous: bool) -> int:
    """The start of the container whose output is requested.  Raises the kubelet's errors."""
    which = f"container {go_quote(container)} in pod {go_quote(pod['metadata']['name'])}"
    status = status_of(pod, container)
    if status is None:
        raise bad_request(f"{which} is not available")
    started: int = status.get("restartCount", 0)
    state, last = status.get("state") or {}, (status.get("lastState") or {}).get("terminated")
    has_run = bool(last and last.get("containerID"))
    runs = "running" in state or bool((state.get("terminated") or {}).get("containerID"))
    if previous:
        if not has_run:
            raise bad_request(f"previous terminated {which} not found")
        return max(started - 1, 0) if runs else started
    if runs or has_run:
        return started
    if "terminated" in state or last:
        raise bad_request(f"{which} is terminated")
    if "waiting" in state:
        reason = (state["waiting"] or {}).get("reason", "")
        raise bad_request(f"{which} is waiting to start: {WAITING.get(reason, reason)}")
    raise bad_request(f"{which} is waiting to start - no logs yet")


def status_of(pod: Obj, container: str) -> Obj | None:
    status = pod.get("status", {})
    found = (one for part in STATUSES for one in status.get(part) or () if one.get("name") == container)
    return next(found, None)


def ended(call: Call, about: LogOptions, *, previous: bool) -> Callable[[], bool]:
    """A function that tells whether that start of the container has ended; cheap while the pod does not change."""
    seen, over = 0, previous

    def is_over() -> bool:
        nonlocal seen, over
        entry = call.store.get(call.key)
        if entry is None:
            return True
        if not over and entry.revision != seen:
            seen, over = entry.revision, not runs_still(objects.decode(entry), about)
        return over

    return is_over


def runs_still(pod: Obj, about: LogOptions) -> bool:
    status = status_of(pod, about.container)
    same = pod["metadata"]["uid"] == about.pod_uid and status is not None
    if not same or status is None or status.get("restartCount", 0) != about.attempt:
        return False
    return "running" in (status.get("state") or {})


# --- on its way -----------------------------------------------------------------------------------


class LogStream:
    """Sends pieces of a log as fast as the client reads them."""

    def __init__(self, pieces: AsyncIterator[bytes], whose: str) -> None:
        self._pieces = pieces
        self._whose = whose
        self._task: asyncio.Task[None] | None = None

    def start(self, sink: Sink) -> None:
        self._task = asyncio.create_task(self._run(sink), name=f"log of {self._whose}")

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _run(self, sink: Sink) -> None:
        try:
            async for piece in self._pieces:
                sink.write(piece)
                await sink.room()
        except Exception:
            log.exception("the log of %s cannot be read", self._whose)
            sink.abort()
        else:
            sink.close()
