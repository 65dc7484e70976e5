"""Checks of virtual machines in a hub without workspaces: their bindings, ends and priorities."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from farflung.apis.globalscheduler.machines import is_virtual_machine
from farflung.hub.auth.authorizer import Authorizer
from farflung.hub.auth.virtual_machines import PODS, check_binding, check_priority
from farflung.hub.registry.pipeline import Stage, Step, Write, of_kinds
from farflung.hub.request.attributes import Attributes
from farflung.hub.request.user import User


@dataclass(frozen=True, slots=True)
class MachineAdmission:
    authorizer: Authorizer

    @property
    def steps(self) -> tuple[Step, ...]:
        return (Step("check_machine", Stage.ADMIT, self._check_machine, of_kinds({PODS})),)

    def _check_machine(self, write: Write) -> None:
        call, new, old = write.call, write.new, write.old
        if not any(pod is not None and is_virtual_machine(pod) for pod in (new, old)):
            return
        may = partial(self._may, call.target.cluster, call.user)
        check_priority(call.user, call.resource, new, old, may)
        check_binding(call.user, new, old, may)

    def _may(self, cluster: str, user: User, attributes: Attributes) -> bool:
        return self.authorizer.decide(cluster, user, attributes).allowed
