"""`kubectl kcp claims`: list and accept the permission claims of bound exports."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from farflung.cli.plugins.commands import (
    CONNECTION,
    KUBECONFIG,
    ApiFailure,
    CommandCall,
    CommandError,
    Flag,
    PluginCommand,
    seconds,
)
from farflung.cli.plugins.session import BINDINGS, PluginSession, is_workspace_path, phase, wait_until

HEADINGS = ("APIBINDING", "RESOURCE GROUP-VERSION", "STATUS")
ATTEMPTS = 5


def get_claims(call: CommandCall) -> None:
    rows = [HEADINGS]
    with PluginSession(call) as session:
        try:
            for binding in _bindings(session, call.words):
                rows += _rows(binding)
        finally:
            _print_table(rows)


def _rows(binding: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    for claim in answered_claims(binding):
        what = f"{claim.get('group', '')}-{claim.get('resource', '')}"
        yield str(binding["metadata"]["name"]), what, str(claim.get("state", ""))


def accept_claims(call: CommandCall) -> None:
    if len(call.words) != 1:
        raise CommandError(f"accepts 1 arg(s), received {len(call.words)}")
    name = call.words[0]
    with PluginSession(call) as session:
        accepted = _accepted(session, name)
    for claim in accepted:
        print(f"claim for {claim_text(claim)} on APIBinding {name} accepted.")
    if not accepted:
        print(f"APIBinding {name} has no open claims.")


def _accepted(session: PluginSession, name: str) -> list[dict[str, Any]]:
    """Accept all exported claims; returns those newly accepted."""
    where = session.path(session.location().path, BINDINGS, name)
    for attempt in range(1, ATTEMPTS + 1):
        binding = _found(session, name)
        answers, news = accept_all(binding)
        if not news:
            break
        version = binding["metadata"].get("resourceVersion")
        try:
            session.connection.merge(
                where, {"metadata": {"resourceVersion": version}, "spec": {"permissionClaims": answers}}
            )
            break
        except ApiFailure as failure:
            if failure.code != 409 or attempt == ATTEMPTS:
                raise
    return news


def _bindings(session: PluginSession, words: list[str]) -> list[dict[str, Any]]:
    if words:
        return [_found(session, words[0])]
    cluster = session.location().path
    try:
        return session.connection.get(session.path(cluster, BINDINGS)).get("items") or []
    except ApiFailure as failure:
        raise CommandError(f'error listing apibindings in "{cluster}" workspace: {failure}') from None


def _found(session: PluginSession, name: str) -> dict[str, Any]:
    try:
        return session.connection.get(session.path(session.location().path, BINDINGS, name))
    except ApiFailure as failure:
        raise CommandError(f"error finding apibinding: {failure}") from None


def _print_table(rows: list[tuple[str, str, str]]) -> None:
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    for first, second, third in rows:
        print(f"{first:<{widths[0]}}   {second:<{widths[1]}}   {third}")


CLAIMS = PluginCommand(
    "claims",
    "Operations related to viewing or updating permission claims",
    example="""
\t# Lists the permission claims and their respective status related to a specific APIBinding.
\tkubectl kcp claims get apibinding cert-manager

\t# List permission claims and their respective status for all APIBindings in current workspace.
\tkubectl kcp claims get apibinding

\t# Accept all permission claims of the export that an APIBinding is bound to.
\tkubectl kcp claims accept apibinding cert-manager
\t""",
    commands=(
        PluginCommand(
            "get",
            "Operations related to fetching APIs with respect to permission claims",
            commands=(
                PluginCommand(
                    "apibinding <apibinding_name>",
                    "Get claims related to apibinding",
                    get_claims,
                    flags=(KUBECONFIG, *CONNECTION),
                ),
            ),
        ),
        PluginCommand(
            "accept",
            "Operations related to accepting permission claims",
            commands=(
                PluginCommand(
                    "apibinding <apibinding_name>",
                    "Accept all claims related to apibinding",
                    accept_claims,
                    flags=(KUBECONFIG, *CONNECTION),
                ),
            ),
        ),
    ),
)


ACCEPTED, REJECTED = "Accepted", "Rejected"


def exported_claims(binding: dict[str, Any]) -> list[dict[str, Any]]:
    return _claims(binding, "status", "exportPermissionClaims")


def answered_claims(binding: dict[str, Any]) -> list[dict[str, Any]]:
    return _claims(binding, "spec", "permissionClaims")


def claim_text(claim: dict[str, Any]) -> str:
    """`configmaps`, or `deployments.apps`."""
    return ".".join(part for part in (claim.get("resource", ""), claim.get("group", "")) if part)


def is_same_claim(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two claims are for the same resources, whatever their state."""
    return _claim_key(one) == _claim_key(other)


def claim_warnings(binding: dict[str, Any]) -> Iterator[str]:
    """Warnings for consumers with unanswered claims."""
    name = binding.get("metadata", {}).get("name", "")
    for claim in exported_claims(binding):
        answers = [answer for answer in answered_claims(binding) if is_same_claim(claim, answer)]
        if not answers:
            yield f"Warning: claim for {claim_text(claim)} exported but not specified on APIBinding {name}"
            yield "Add this claim to the APIBinding's Spec."
        if not any(answer.get("state") in (ACCEPTED, REJECTED) for answer in answers):
            yield f"Warning: claim for {claim_text(claim)} specified on APIBinding {name} but not accepted or rejected."


def accept_all(binding: dict[str, Any]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """All claims, accepted; and those that are newly accepted."""
    answers = [dict(answer) for answer in answered_claims(binding)]
    news = []
    for claim in exported_claims(binding):
        answer = next((answer for answer in answers if is_same_claim(claim, answer)), None)
        if answer is None:
            answer = dict(claim)
            answers.append(answer)
        if answer.get("state") != ACCEPTED:
            answer["state"] = ACCEPTED
            news.append(claim)
    return answers, news


def _claims(binding: dict[str, Any], part: str, field: str) -> list[dict[str, Any]]:
    found = (binding.get(part) or {}).get(field) or []
    return [claim for claim in found if isinstance(claim, dict)]


def _claim_key(claim: dict[str, Any]) -> tuple[Any, ...]:
    return (
        claim.get("group") or "",
        claim.get("resource") or "",
        bool(claim.get("all")),
        claim.get("identityHash") or "",
        claim.get("resourceSelector") or [],
    )


BOUND = "Bound"


def bind_export(call: CommandCall) -> None:
    with PluginSession(call) as session:
        _bind_export(session, call)


def _bind_export(session: PluginSession, call: CommandCall) -> None:
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
    """Messages of the server, each once."""
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


BIND = PluginCommand(
    "bind",
    "Bind different types into current workspace.",
    commands=(
        PluginCommand(
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
