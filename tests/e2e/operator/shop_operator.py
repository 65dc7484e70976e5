"""An operator of the kind that people write with kopf: `kopf run --standalone -n NAMESPACE shop_operator.py`.

A Shop has as many shelves as its spec says, each a ConfigMap that the Shop owns.  Its status says how many there are.
A Shop that goes leaves a ConfigMap behind which nobody owns.
"""

from __future__ import annotations

from typing import Any

import kopf
from kubernetes import client, config
from kubernetes.client.exceptions import NotFoundException


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
    config.load_kube_config()
    settings.networking.error_backoffs = [0.05] * 1200
    settings.posting.enabled = True
    settings.persistence.finalizer = "example.com/shop-operator"


@kopf.on.create("example.com", "v1", "shops")
@kopf.on.update("example.com", "v1", "shops", field="spec.shelves")
@kopf.on.resume("example.com", "v1", "shops")
def furnish(name: str, namespace: str, spec: kopf.Spec, patch: kopf.Patch, logger: Any, **_: Any) -> None:
    core = client.CoreV1Api()
    wanted = {f"{name}-shelf-{number}" for number in range(spec["shelves"])}
    present = {
        one.metadata.name for one in core.list_namespaced_config_map(namespace, label_selector=f"shop={name}").items
    }
    for absent in sorted(wanted - present):
        body = {"metadata": {"name": absent, "labels": {"shop": name}}, "data": {"room": str(spec["room"])}}
        kopf.adopt(body)
        core.create_namespaced_config_map(namespace, body)
    for surplus in sorted(present - wanted):
        try:
            core.delete_namespaced_config_map(surplus, namespace)
        except NotFoundException:
            logger.info("%s was gone already", surplus)
    patch.status["shelves"] = len(wanted)
    patch.status["phase"] = "Open"


@kopf.on.delete("example.com", "v1", "shops")
def close(name: str, namespace: str, **_: Any) -> None:
    try:
        client.CoreV1Api().create_namespaced_config_map(namespace, {"metadata": {"name": f"{name}-closed"}})
    except client.exceptions.ConflictException:
        return
