"""What the controllers of a hub with workspaces ask for, by the audit log: who asks, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson
import yaml
from hub_process import Client, HubProcess

from farflung.hub.tenancy.controller_roles import CONTROLLERS, user_of

MASTER = "shard-admin"
USERS = [user_of(name) for name in CONTROLLERS]
#: in messages of refusals that no permission prevents
OTHER_REASONS = ("ValidatingAdmissionPolicy", "exceeded quota", "being terminated", "is terminating")


def audit_options(directory: Path) -> list[str]:
    """Options of `farflung start`.  `directory`: of the hub."""
    log, policy = log_of(directory), directory.with_name(f"{directory.name}.policy.yaml")
    log.parent.mkdir(parents=True, exist_ok=True)
    rules = [{"level": "Metadata", "users": [*USERS, MASTER]}, {"level": "None"}]
    head = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"]}
    policy.write_text(yaml.safe_dump({**head, "rules": rules}))
    return ["--audit-policy-file", str(policy), "--audit-log-path", str(log)]


def log_of(directory: Path) -> Path:
    return directory.with_name(f"{directory.name}.audit.log")


def check_controllers(hub: HubProcess) -> None:
    """Raises AssertionError if a controller of the hub was refused, or none worked as its user."""
    events = list(events_of(hub))
    with hub.client() as client:
        refused = [one for one in events if one["user"]["username"] in USERS and is_refused(one, client)]
    assert refused == []
    assert {one["user"]["username"] for one in events} >= set(USERS)


def check_administrators(hub: HubProcess) -> None:
    """Raises AssertionError if a program of ours was an administrator.  Controllers that run by hand may be."""
    assert [one for one in events_of(hub) if "system:masters" in one["user"]["groups"] and is_ours(one)] == []


def events_of(hub: HubProcess) -> Iterator[Any]:
    yield from map(orjson.loads, log_of(hub.directory).read_bytes().splitlines())


def is_ours(event: Any) -> bool:
    return bool(event.get("userAgent", "").startswith("farflung/"))


def lacks_permission(status: int, message: str) -> bool:
    return status == 403 and not any(reason in message for reason in OTHER_REASONS)


def is_refused(event: Any, client: Client) -> bool:
    """Not because the workspace is deleted by now."""
    status = event.get("responseStatus") or {}
    if not lacks_permission(status.get("code", 0), status.get("message", "")):
        return False
    cluster = urlsplit(event["requestURI"]).path.rpartition("/clusters/")[2].partition("/")[0]
    path = f"/clusters/{cluster}/apis/core.kcp.io/v1alpha1/logicalclusters/cluster"
    return cluster == "*" or client.request("GET", path).status == 200
