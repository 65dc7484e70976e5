"""`kubectl kcp bind`: have somebody else's API in one's own workspace."""

from __future__ import annotations

from typing import Any

from farflung.cli.plugins.commands import Call, Command
from farflung.cli.plugins.common_flags import CONNECTION, KUBECONFIG
from farflung.cli.plugins.errors import CommandError
from farflung.cli.plugins.flags import Flag, seconds
from farflung.cli.plugins.session import BINDINGS, Session, is_workspace_path, phase, wait_until

BOUND = "Bound"


def bind_export(call: Call) -> None:
    with Session(call) as session:
        _bind_export(session, call)


def _bind_export(session: Session, call: Call) -> None:
    path, export = _reference(call.words)
    name = call.flags.get("name") or export
    cluster = session.location().path
    binding = session.connection.post(session.path(cluster, BINDINGS), _binding(name, path, export))
    print(f"apibinding {name} created. Waiting to successfully bind ...", flush=True)
    if phase(binding) != BOUND:
        where = session.path(cluster, BINDINGS, name)
        timeout = seconds(call.flags.get("timeout", "30s"))
        if not wait_until(lambda: phase(session.connection.get(where)) == BOUND, timeout):
            why = "".join(f": {message}" for message in _obstacles(session.connection.get(where)))
            raise CommandError(f"could not bind {name}: timed out waiting for the condition{why}")
    print(f"{name} created and bound.")


def _obstacles(binding: dict[str, Any]) -> list[str]:
    """What the server has against it, each said once."""
    conditions = (binding.get("status") or {}).get("conditions") or ()
    wrong = [one for one in conditions if one.get("status") == "False" and one.get("severity") == "Error"]
    return list(dict.fromkeys(one["message"] for one in wrong if one.get("message")))


def _reference(words: list[str]) -> tuple[str, str]:
    if not words or not words[0]:
        raise CommandError("`root:ws:apiexport_object` reference to bind is required as an argument")
    path, _, export = words[0].rpartition(":")
    if not is_workspace_path(path) or not export:
        raise CommandError(
            "fully qualified reference to workspace where APIExport exists is required. The format is "
            "`<logical-cluster-name>:<apiexport>` or `<full>:<path>:<to>:<apiexport>`"
        )
    return path, export


def _binding(name: str, path: str, export: str) -> dict[str, Any]:
    return {
        "apiVersion": "apis.kcp.io/v1alpha1",
        "kind": "APIBinding",
        "metadata": {"name": name},
        "spec": {"reference": {"export": {"path": path, "name": export}}},
    }


BIND = Command(
    "bind",
    "Bind different types into current workspace.",
    commands=(
        Command(
            "apiexport <workspace_path:apiexport-name>",
            "Bind to an APIExport",
            bind_export,
            example="""
\t# Create an APIBinding named "my-binding" that binds to the APIExport "my-export" in the "root:my-service" workspace.
\tkubectl kcp bind apiexport root:my-service:my-export --name my-binding
\t""",
            flags=(
                Flag("name", "Name of the APIBinding to create."),
                Flag(
                    "timeout",
                    "Duration to wait for APIBinding to be created successfully. (default 30s)",
                    "duration",
                ),
                KUBECONFIG,
                *CONNECTION,
            ),
        ),
    ),
)
