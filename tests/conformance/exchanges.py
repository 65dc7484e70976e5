"""Replays recorded exchanges with an API server, and collects where another server answers differently.

`recordings/README.md` describes the format of the steps.
"""

from __future__ import annotations

import base64
import http.client
import json
import queue
import random
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import recorded
from comparison import (
    ABSENT,
    ANYTHING,
    Difference,
    compared,
    errors_sorted,
    resolved,
    substituted,
    variables_in,
    visible,
)
from servers import Reply, Request, Server, Watch, decoded

Step = dict[str, Any]

ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
COMPARED_HEADERS: Final = ("Content-Type", "Warning", "Location", "Retry-After", "Www-Authenticate", "Allow")
USER_AGENT: Final = "replay/1.0"
CLUSTER_SCOPED_CLEANUP: Final = {"propagationPolicy": "Background", "gracePeriodSeconds": "0"}
MERGE_PATCH: Final = {"Content-Type": "application/merge-patch+json"}

UNTIL_SECONDS: Final = 10.0  #: how long a step is repeated until it matches, unless it has a `timeout`
IMPATIENCE: Final = 1.0  #: the same for a step that is known to differ
PAUSE: Final = 0.1  #: seconds between two tries
WATCH_BEGINS: Final = 3.0  #: seconds until the steps beside a watch begin, even if it has not answered
EVENTS_SECONDS: Final = 12.0  #: how long a watch has for the events that were recorded
QUIET: Final = 0.25  #: seconds without an event after which no further event is expected
CLEAN_SECONDS: Final = 60.0


@dataclass
class Scenario:
    """A recording: what it is about, and its steps."""

    name: str  #: `basics.jsonl`
    header: dict[str, Any]
    steps: list[Step]

    @classmethod
    def read(cls, path: Path) -> Scenario:
        header, *steps = (json.loads(line) for line in recorded.read(path).split("\n") if line)
        for number, step in enumerate(steps, 1):
            step["step"] = number
        return cls(recorded.name_of(path), header, steps)

    def hurry(self, known: Collection[str]) -> Scenario:
        """Wait only a moment for answers that are known to differ."""
        for step in self.steps:
            if "until" in step and f"{self.name}:{step['step']}" in known:
                step["timeout"] = IMPATIENCE
        return self


@dataclass
class Outcome:
    passed: int = 0
    differences: dict[str, list[Difference]] = field(default_factory=dict)  #: by step: `basics.jsonl:17`
    left_out: set[str] = field(default_factory=set)

    @property
    def differing(self) -> frozenset[str]:
        return frozenset(self.differences)

    def text(self, steps: Collection[str], limit: int = 8) -> str:
        """The differences of these steps, to read."""
        lines = []
        for where in sorted(self.differing & set(steps), key=in_order):
            found = self.differences[where]
            lines += [where, *(f"  {line}" for one in found[:limit] for line in str(one).splitlines())]
            if len(found) > limit:
                lines.append(f"  and {len(found) - limit} more")
        return "\n".join(lines)


def in_order(where: str) -> tuple[str, list[int]]:
    """Sorts `basics.jsonl:9` before `basics.jsonl:10`."""
    name, _, number = where.rpartition(":")
    return name, [int(part) for part in number.split(".")]


def unchanged(answer: Any) -> Any:
    return answer


def every_step(step: Step) -> bool:
    return True


class Replay:
    """Replays scenarios one after the other against one server."""

    quiet = QUIET

    def __init__(
        self,
        server: Server,
        *,
        prefix: str = "",
        tokens: Mapping[str, str] | None = None,
        view: Callable[[Any], Any] = unchanged,
        serves: Callable[[Step], bool] = every_step,
        keeps: bool = False,
    ) -> None:
        """`prefix` comes before every path; `tokens` are those of further identities, by name.

        `view` is what to compare of an answer.  A step that `serves` denies is left out, and so is every later step of
        the recording that needs a value of its answer.  `keeps`: do not delete the objects at the end.
        """
        self.outcome = Outcome()
        self._server, self._prefix, self._tokens = server, prefix, dict(tokens or {})
        self._view, self._serves, self._keeps = view, serves, keeps
        self._leftovers: list[str] = []
        self._begin("", [])

    def _begin(self, name: str, steps: list[Step]) -> None:
        self._name = name
        self._variables = {"run": "".join(random.choice(ALPHABET) for _ in range(6))}
        self._missing: set[str] = set()
        self._created: list[str] = []
        self._sent = json.dumps([step.get("body") for step in walk(steps)])

    def play(self, scenario: Scenario) -> None:
        self._begin(scenario.name, scenario.steps)
        try:
            for step in scenario.steps:
                self._step(step, str(step["step"]))
        finally:
            if not self._keeps:
                self._clean()

    # --- one step ---------------------------------------------------------------------------------

    def _step(self, step: Step, label: str) -> None:
        where = f"{self._name}:{label}"
        if not self._serves(step) or self._missing & variables_in(step):
            self.outcome.left_out.add(where)
            self._missing |= step.get("save", {}).keys()
            return
        parts = ("path", "query", "headers", "body", "body_base64")
        sent = {name: substituted(step[name], self._variables) for name in parts if name in step}
        sent |= {"method": step.get("method", "GET"), "as": step.get("as", "admin")}
        looks = {name: step[name] for name in ("only", "ignore", "save", "unordered") if name in step}
        view = step | substituted(looks, self._variables)
        unknown = sorted(variables_in(sent))
        if unknown:
            found = [Difference("", f"a saved {unknown[0]}", "an earlier step failed to save it")]
        else:
            try:
                found = self._watch(step, sent, view, label) if step.get("watch") else self._poll(step, sent, view)
            except (OSError, http.client.HTTPException) as error:
                found = [Difference("", "an answer", repr(error))]
        if found:
            self.outcome.differences[where] = found
        else:
            self.outcome.passed += 1

    def _request(self, sent: Step) -> Request:
        target = self._prefix + sent["path"]
        if sent.get("query"):
            target += "?" + urlencode(sent["query"], doseq=True)
        headers = {"Accept": "application/json", "User-Agent": USER_AGENT}
        body = None
        if "body_base64" in sent:
            body = base64.b64decode(sent["body_base64"])
        elif "body" in sent:
            body = (sent["body"] if isinstance(sent["body"], str) else json.dumps(sent["body"])).encode()
        if body is not None:
            headers["Content-Type"] = "application/json"
        headers |= sent.get("headers", {})
        identity = sent.get("as", "admin")
        token = None if identity in ("admin", "anonymous") else (self._tokens | self._variables).get(identity)
        if token is not None:
            headers.setdefault("Authorization", f"Bearer {token}")
        kept = {name: value for name, value in headers.items() if value is not None}
        return Request(sent["method"], target, kept, body, identity == "admin")

    def _poll(self, step: Step, sent: Step, view: Step) -> list[Difference]:
        deadline = time.monotonic() + (step.get("timeout", UNTIL_SECONDS) if "until" in step else 0)
        while True:
            reply = self._server.call(self._request(sent))
            answer = decoded(reply.body)
            found = self._not_reached(step, reply.status, answer)
            found += self._differences(view, reply, answer) + self._unchanged(step, answer)
            if not found or time.monotonic() > deadline:
                break
            time.sleep(PAUSE)
        self._answered(step, sent, view, reply, answer)
        self._save(view, answer)
        self._remember(sent, reply.status, answer)
        return found

    def _save(self, view: Step, answer: Any) -> None:
        for name, pointer in view.get("save", {}).items():
            value = resolved(answer, pointer)
            if value is ABSENT:
                continue
            text = value if isinstance(value, str) else json.dumps(value)
            self._variables[name] = text
            if name.endswith("_b64"):  # a token of a Secret
                self._variables[name.removesuffix("_b64")] = base64.b64decode(text).decode()

    def _not_reached(self, step: Step, status: int, answer: Any) -> list[Difference]:
        until = step.get("until")
        if not isinstance(until, dict):
            return []
        found = []
        for pointer, wanted in substituted(until, self._variables).items():
            got = status if pointer == "status" else resolved(answer, pointer)
            if got != wanted and not (wanted == ANYTHING and got is not ABSENT):
                found.append(Difference(f"until {pointer}", wanted, got))
        return found

    def _unchanged(self, step: Step, answer: Any) -> list[Difference]:
        forbidden = substituted(step.get("differs", {}), self._variables)
        return [
            Difference(pointer, f"anything but {value}", value)
            for pointer, value in forbidden.items()
            if resolved(answer, pointer) == value
        ]

    def _differences(self, view: Step, reply: Reply, answer: Any) -> list[Difference]:
        names = [name for name in ("status", "response_headers", "response") if name in view]
        expected = substituted({name: view[name] for name in names}, self._variables)
        headers = compared_headers(reply)
        if "Allow" not in expected.get("response_headers", {}):
            headers.pop("Allow", None)
        got = {"status": reply.status, "response_headers": headers, "response": visible(view, self._view(answer))}
        unordered = ["/response" + pointer for pointer in view.get("unordered", ())]
        if view.get("any_order"):
            expected, got = errors_sorted(expected), errors_sorted(got)
        return [one for name in expected for one in compared(expected[name], got[name], f"/{name}", unordered)]

    def _answered(self, step: Step, sent: Step, view: Step, reply: Reply, answer: Any) -> None:
        """Called with the last answer to a step."""

    # --- watches ----------------------------------------------------------------------------------

    def _watch(self, step: Step, sent: Step, view: Step, label: str) -> list[Difference]:
        watch = self._server.watch(self._request(sent))
        try:
            watch.answered.wait(WATCH_BEGINS)
            for number, inner in enumerate(step.get("during", ()), 1):
                inner["step"] = number
                self._step(inner, f"{label}.{number}")
            came = self._collect(watch, self._events_expected(step), bool(step.get("closes")))
        finally:
            watch.close()
        counted = that_count(came, bool(step.get("bookmarks")))
        events = [visible(view, self._view(event)) for event in counted]
        for name, pointer in step.get("save", {}).items():
            value = resolved(events, pointer)
            if value is not ABSENT:
                self._variables[name] = value
        return self._watched(step, watch.reply, events)

    def _events_expected(self, step: Step) -> int | None:
        """How many events to wait for; None if that is not known."""
        return len(step.get("events", ()))

    def _watched(self, step: Step, reply: Reply | None, events: list[Any]) -> list[Difference]:
        names = [name for name in ("status", "response_headers", "response", "events") if name in step]
        expected = substituted({name: step[name] for name in names}, self._variables)
        got = {
            "status": reply.status if reply else None,
            "response_headers": compared_headers(reply) if reply else {},
            "response": decoded(reply.body) if reply else "",
            "events": events,
        }
        unordered = step.get("unordered", ())
        return [one for name in names for one in compared(expected[name], got[name], f"/{name}", unordered)]

    def _collect(self, watch: Watch, count: int | None, closes: bool) -> list[Any]:
        """`count` events, and any that come before the watch is quiet; to the end of the stream if it `closes`."""
        events: list[Any] = []
        deadline = time.monotonic() + EVENTS_SECONDS
        while True:
            is_enough = count is None or len(events) >= count
            wait = deadline - time.monotonic() if closes or not is_enough else self.quiet
            try:
                line = watch.lines.get(timeout=max(wait, 0.01))
            except queue.Empty:
                return events
            if line is None:
                return events
            event = json.loads(line)
            if not is_plain_bookmark(event) or count is None or closes:
                events.append(event)

    # --- deleting what was created ----------------------------------------------------------------

    def _remember(self, sent: Step, status: int, answer: Any) -> None:
        """Note a new object."""
        if status not in (200, 201) or sent["method"] not in ("POST", "PUT", "PATCH") or not isinstance(answer, dict):
            return
        kind, path = answer.get("kind", ""), sent["path"]
        name = (answer.get("metadata") or {}).get("name")
        if not name and kind == "Table":
            name = resolved(sent.get("body"), "/metadata/name") or None
        if not isinstance(name, str) or "dryRun" in sent.get("query", {}):
            return
        if kind.endswith(("Review", "Request", "Scale")):
            return
        if sent["method"] == "POST":
            path += "/" + name
        if path.endswith("/" + name) and path not in self._created:
            self._created.append(path)

    def _clean(self) -> None:
        for path in reversed(self._created):
            status, answer = self._ask("DELETE", path, query=CLUSTER_SCOPED_CLEANUP)
            if status != 200:
                continue
            finalizers = isinstance(answer, dict) and (answer.get("metadata") or {}).get("finalizers")
            if finalizers and "/customresourcedefinitions/" not in path:
                self._ask("PATCH", path, headers=MERGE_PATCH, body={"metadata": {"finalizers": None}})
            if re.search(r"/namespaces/[^/]+$|/customresourcedefinitions/", path):
                self._leftovers.append(path)

    def wait_until_clean(self) -> list[str]:
        """Wait until namespaces and definitions are deleted, and return those that are not."""
        deadline = time.monotonic() + CLEAN_SECONDS
        while self._leftovers and time.monotonic() < deadline:
            self._leftovers = [path for path in self._leftovers if self._ask("GET", path)[0] == 200]
            time.sleep(PAUSE if self._leftovers else 0)
        return self._leftovers

    def _ask(self, method: str, path: str, **more: Any) -> tuple[int, Any]:
        reply = self._server.call(self._request({"method": method, "path": path, **more}))
        return reply.status, decoded(reply.body)


def walk(steps: Collection[Step]) -> Iterator[Step]:
    """Every step, with those beside a watch."""
    for step in steps:
        yield step
        yield from walk(step.get("during", ()))


def compared_headers(reply: Reply) -> dict[str, str | list[str]]:
    found: dict[str, str | list[str]] = {}
    for name in COMPARED_HEADERS:
        values = [value for other, value in reply.headers if other.lower() == name.lower()]
        if values:
            found[name] = values[0] if len(values) == 1 else values
    return found


def is_plain_bookmark(event: Mapping[str, Any]) -> bool:
    """Those that end the initial events are not plain: they come once, at a known time."""
    return event.get("type") == "BOOKMARK" and "initial-events-end" not in json.dumps(event)


def that_count(events: list[Any], bookmarks: bool) -> list[Any]:
    """A server sends plain bookmarks when it likes: leave them out, or take one for any number of them."""
    counted: list[Any] = []
    for event in events:
        is_repeated = bool(counted) and counted[-1].get("type") == "BOOKMARK"
        if not is_plain_bookmark(event) or (bookmarks and not is_repeated):
            counted.append(event)
    return counted
