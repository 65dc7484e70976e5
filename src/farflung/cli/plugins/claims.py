"""`kubectl kcp claims`: see what the exports one is bound to ask for, and grant it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from farflung.cli.plugins import permission_claims
from farflung.cli.plugins.commands import Call, Command
from farflung.cli.plugins.common_flags import CONNECTION, KUBECONFIG
from farflung.cli.plugins.errors import ApiFailure, CommandError
from farflung.cli.plugins.session import BINDINGS, Session

HEADINGS = ("APIBINDING", "RESOURCE GROUP-VERSION", "STATUS")
ATTEMPTS = 5


def get_claims(call: Call) -> None:
    rows = [HEADINGS]
    with Session(call) as session:
        try:
            for binding in _bindings(session, call.words):
                rows += _rows(binding)
        finally:
            _print_table(rows)


def _rows(binding: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    for claim in permission_claims.answered(binding):
        what = f"{claim.get('group', '')}-{claim.get('resource', '')}"
        yield str(binding["metadata"]["name"]), what, str(claim.get("state", ""))


def accept_claims(call: Call) -> None:
    if len(call.words) != 1:
        raise CommandError(f"accepts 1 arg(s), received {len(call.words)}")
    name = call.words[0]
    with Session(call) as session:
        accepted = _accepted(session, name)
    for claim in accepted:
        print(f"claim for {permission_claims.shown(claim)} on APIBinding {name} accepted.")
    if not accepted:
        print(f"APIBinding {name} has no open claims.")


def _accepted(session: Session, name: str) -> list[dict[str, Any]]:
    """Accept all exported claims; those for which that is new."""
    where = session.path(session.location().path, BINDINGS, name)
    for attempt in range(1, ATTEMPTS + 1):
        binding = _found(session, name)
        answers, news = permission_claims.with_accepted(binding)
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


def _bindings(session: Session, words: list[str]) -> list[dict[str, Any]]:
    if words:
        return [_found(session, words[0])]
    cluster = session.location().path
    try:
        return session.connection.get(session.path(cluster, BINDINGS)).get("items") or []
    except ApiFailure as failure:
        raise CommandError(f'error listing apibindings in "{cluster}" workspace: {failure}') from None


def _found(session: Session, name: str) -> dict[str, Any]:
    try:
        return session.connection.get(session.path(session.location().path, BINDINGS, name))
    except ApiFailure as failure:
        raise CommandError(f"error finding apibinding: {failure}") from None


def _print_table(rows: list[tuple[str, str, str]]) -> None:
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    for first, second, third in rows:
        print(f"{first:<{widths[0]}}   {second:<{widths[1]}}   {third}")


CLAIMS = Command(
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
        Command(
            "get",
            "Operations related to fetching APIs with respect to permission claims",
            commands=(
                Command(
                    "apibinding <apibinding_name>",
                    "Get claims related to apibinding",
                    get_claims,
                    flags=(KUBECONFIG, *CONNECTION),
                ),
            ),
        ),
        Command(
            "accept",
            "Operations related to accepting permission claims",
            commands=(
                Command(
                    "apibinding <apibinding_name>",
                    "Accept all claims related to apibinding",
                    accept_claims,
                    flags=(KUBECONFIG, *CONNECTION),
                ),
            ),
        ),
    ),
)
