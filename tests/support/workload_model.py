"""Objects in a dict, the steps of controllers done on them at once, and a node that is told what to do: a cluster
without an API, in which every order of things can be tried."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from farflung.apis.names import DEPLOYMENTS, PODS, REPLICA_SETS, Collection
from farflung.controllers.workload.model.objects import is_terminating
from farflung.controllers.workload.model.ownership import controller_reference
from farflung.controllers.workload.model.pods import is_active, is_available, is_finished, is_ready, phase
from farflung.controllers.workload.model.steps import WriteStep
from farflung.machinery.errors import Obj
from farflung.machinery.times import format_seconds
from farflung.runtime.plan import Create, Delete, Update, UpdateStatus

START = datetime(2024, 5, 1, 12, tzinfo=UTC)


class Model:
    def __init__(self) -> None:
        self.now = START
        self.objects: dict[tuple[Collection, str], Obj] = {}
        self._numbers = itertools.count(1)

    def suffix(self) -> str:
        return f"x{next(self._numbers):04d}"

    # --- the API ----------------------------------------------------------------------------------

    def create(self, collection: Collection, obj: Obj) -> Obj:
        name = obj["metadata"]["name"]
        assert (collection, name) not in self.objects, f"{name} exists"
        made = copy.deepcopy(obj)
        stamp = format_seconds(self.now)
        made["metadata"] |= {"uid": f"uid-{next(self._numbers)}", "creationTimestamp": stamp, "generation": 1}
        made["metadata"].setdefault("namespace", "default")
        made.setdefault("status", {"phase": "Pending"} if collection == PODS else {})
        self.objects[collection, name] = made
        return made

    def get(self, collection: Collection, name: str) -> Obj:
        return self.objects[collection, name]

    def of(self, collection: Collection, owner: Obj) -> list[Obj]:
        uid = owner["metadata"]["uid"]
        alike = (obj for (kind, _), obj in sorted(self.objects.items()) if kind == collection)
        return [obj for obj in alike if (controller_reference(obj) or {}).get("uid") == uid]

    def all(self, collection: Collection) -> list[Obj]:
        return [obj for (kind, _), obj in sorted(self.objects.items()) if kind == collection]

    def change(self, collection: Collection, name: str, **spec: Any) -> None:
        obj = self.objects[collection, name]
        if obj["spec"] | spec != obj["spec"]:
            obj["spec"] = copy.deepcopy(obj["spec"] | spec)
            obj["metadata"]["generation"] += 1

    def perform(self, steps: Iterable[WriteStep]) -> int:
        """How many there were."""
        number = 0
        for step in steps:
            self._do(step)
            number += 1
        return number

    def _do(self, step: WriteStep) -> None:
        write = step.write
        place = write.collection, write.name
        match write:
            case Create():
                self.create(write.collection, dict(write.object))
            case Update():
                new, old = copy.deepcopy(dict(write.object)), self.objects[place]
                new["status"] = old["status"]
                new["metadata"]["generation"] = old["metadata"]["generation"] + (new.get("spec") != old.get("spec"))
                self.objects[place] = new
                self._sweep(write.name)
            case UpdateStatus():
                old = self.objects[place]
                notes = write.object["metadata"].get("annotations")
                metadata = old["metadata"] | ({"annotations": copy.deepcopy(notes)} if notes else {})
                self.objects[place] = old | {"metadata": metadata, "status": copy.deepcopy(write.object["status"])}
            case Delete():
                self.delete(write.collection, write.name)

    def delete(self, collection: Collection, name: str) -> None:
        """At once, unless a node or a finalizer holds it."""
        obj = self.objects[collection, name]
        if collection == PODS and (obj["spec"].get("nodeName") or obj["metadata"].get("finalizers")):
            obj["metadata"].setdefault("deletionTimestamp", format_seconds(self.now))
        else:
            del self.objects[collection, name]

    def _sweep(self, name: str) -> None:
        """What waited for its last finalizer goes."""
        obj = self.objects.get((PODS, name))
        if obj is None or not is_terminating(obj) or obj["metadata"].get("finalizers"):
            return
        if is_finished(obj) or not obj["spec"].get("nodeName"):
            del self.objects[PODS, name]

    # --- the node ---------------------------------------------------------------------------------

    def run(self, pod: Obj, *, ready: bool = True) -> None:
        """It starts, on the only node, or becomes ready, or not ready."""
        same = phase(pod) == "Running" and is_ready(pod) == ready
        if same or is_terminating(pod) or is_finished(pod):
            return
        condition = {"type": "Ready", "status": str(ready), "lastTransitionTime": format_seconds(self.now)}
        pod["spec"]["nodeName"] = "edge"
        pod["status"] = {"phase": "Running", "conditions": [condition]}

    def end(self, pod: Obj, outcome: str) -> None:
        if not is_finished(pod):
            pod["spec"]["nodeName"] = "edge"
            pod["status"] = {"phase": outcome, "conditions": []}

    def leave(self, pod: Obj) -> None:
        """A pod that was deleted is gone from the node."""
        if is_terminating(pod):
            if pod["metadata"].get("finalizers"):
                self.end(pod, "Failed")
            else:
                del self.objects[PODS, pod["metadata"]["name"]]

    def work(self) -> int:
        """Remove the Pods that were deleted and make all others ready.  Failed Pods stay, as they do at a kubelet.
        Returns how many Pods had to change."""
        changing = [pod for pod in self.all(PODS) if is_terminating(pod) or not (is_finished(pod) or is_ready(pod))]
        for pod in changing:
            self.leave(pod) if is_terminating(pod) else self.run(pod)
        return len(changing)

    def active(self) -> list[Obj]:
        return [pod for pod in self.all(PODS) if is_active(pod)]

    def available(self, seconds: int = 0) -> int:
        return sum(is_available(pod, seconds, self.now) for pod in self.active())

    def later(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


def deployment(name: str = "web", image: str = "1", **spec: Any) -> Obj:
    labels = {"app": name}
    whole = {
        "replicas": 1,
        "selector": {"matchLabels": labels},
        "template": template(image, labels),
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}},
        "revisionHistoryLimit": 10,
        "progressDeadlineSeconds": 600,
    }
    return {"metadata": {"name": name, "namespace": "default"}, "spec": whole | spec}


def template(image: str, labels: dict[str, str]) -> Obj:
    return {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": image}]}}


__all__ = ["DEPLOYMENTS", "PODS", "REPLICA_SETS", "START", "Model", "deployment", "template"]
