"""What is told of one container, as it changes."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from farflung.edge.node.restarting import restarts
from farflung.edge.node.status import lost, terminated, waiting
from farflung.edge.runtimes.base import Finished, Started
from farflung.machinery.errors import Obj


class Role(StrEnum):
    INIT = "init"  #: does its work before the others start
    SIDECAR = "sidecar"  #: starts before the others and ends after them
    MAIN = "main"


@dataclass(slots=True)
class ContainerStatus:
    name: str
    image: str
    role: Role
    state: Obj = field(default_factory=lambda: waiting("ContainerCreating"))
    last_state: Obj = field(default_factory=dict)
    restarts: int = 0
    image_id: str = ""
    container_id: str = ""
    started: bool = False
    passing: bool = False  #: its readiness probe
    stand_in: str = ""

    @classmethod
    def of(cls, container: Obj, role: Role, former: Obj | None, now: str) -> ContainerStatus:
        """`former`: what was told when we were last there.  Whatever ran then has ended since."""
        made = cls(container["name"], container.get("image", ""), role)
        if former is None:
            return made
        made.restarts = former.get("restartCount", 0)
        made.last_state = former.get("lastState") or {}
        made.image_id, made.container_id = former.get("imageID", ""), former.get("containerID", "")
        state = former.get("state") or {}
        if "running" in state:
            state = lost(former, now)
        elif "terminated" not in state:
            state = made.last_state
        if "terminated" in state:
            made.state = state
        return made

    @property
    def exit_code(self) -> int | None:
        """If it has ended, and nothing was done about that yet."""
        ended = self.state.get("terminated")
        return None if ended is None else int(ended.get("exitCode", 0))

    @property
    def attempt(self) -> int:
        """The number of the next one."""
        has_run = "terminated" in self.state or "terminated" in self.last_state
        return self.restarts + 1 if has_run else self.restarts

    def again(self, policy: str) -> bool:
        """Whether it is to be started once more."""
        code = self.exit_code
        if code is None or self.role is Role.SIDECAR:
            return True
        if self.role is Role.INIT and policy == "Always":
            policy = "OnFailure"
        return restarts(policy, code)

    # --- what happens -----------------------------------------------------------------------------

    def wait(self, reason: str, message: str = "") -> None:
        if "terminated" in self.state:
            self.last_state = self.state
        self.state = waiting(reason, message)

    def run(self, started: Started, image: str, now: str, attempt: int) -> None:
        if "terminated" in self.state:
            self.last_state = self.state
        self.state = {"running": {"startedAt": now}}
        self.restarts = attempt
        self.image, self.image_id, self.container_id = image, started.image_id, started.id
        self.started = self.passing = False
        self.stand_in = started.stand_in

    def end(self, finished: Finished) -> None:
        since = (self.state.get("running") or {}).get("startedAt", "")
        self.state = terminated(finished, since, self.container_id)
        self.started = self.passing = False

    def settle(self) -> None:
        """It is not started any more: what it waited for does not matter, but how it ended."""
        if "waiting" in self.state and "terminated" in self.last_state:
            self.state, self.last_state = self.last_state, {}

    @property
    def done(self) -> bool:
        """An init container that did its work, or a sidecar that is up."""
        return self.started if self.role is Role.SIDECAR else self.exit_code == 0

    def told(self) -> Obj:
        """As in the status of the pod."""
        running = "running" in self.state
        ready = self.done if self.role is Role.INIT else running and self.started and self.passing
        return {
            "name": self.name,
            "state": self.state,
            "lastState": self.last_state,
            "ready": ready,
            "restartCount": self.restarts,
            "image": self.image,
            "imageID": self.image_id,
            "started": running and (self.started or self.role is Role.INIT),
            **({"containerID": self.container_id} if self.container_id else {}),
        }
