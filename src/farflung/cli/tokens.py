"""Tokens of users, for administrators with write access to the hub's directory.  A running hub follows the file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import click

from farflung.cli.credentials import KUBECONFIG, TOKENS, kubeconfig
from farflung.cli.plugins.commands import CommandError
from farflung.cli.plugins.kubeconfig import CLUSTERS, load
from farflung.hub.auth.static_tokens import TokenRecord, read_tokens, token_hash, write_tokens
from farflung.lib.files import locked
from farflung.lib.ids import new_token
from farflung.machinery.times import human
from farflung.store.base import Unusable

ID_LENGTH: Final = 12  #: characters of a hash in the output
UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
MAX_VALIDITY: Final = timedelta(days=36525)


def lifetime_of(text: str) -> timedelta | None:
    """`30d`; None for `never`."""
    return None if text == "never" else duration(text, "--expires")


def duration(text: str, option: str) -> timedelta:
    """`30d`"""
    found = re.fullmatch(r"([0-9]{1,18})([smhdw])", text)
    try:
        lasting = timedelta(**{UNITS[found[2]]: int(found[1])}) if found else timedelta(0)
    except OverflowError:
        lasting = timedelta.max
    if found is None:
        why = "is not a duration: use a number with s, m, h, d or w, like 30d"
    elif not lasting:
        why = "is too short"
    elif lasting > MAX_VALIDITY:
        why = f"is too long: at most {MAX_VALIDITY.days}d"
    else:
        return lasting
    raise click.BadParameter(f"{text!r} {why}", param_hint=f"'{option}'")


@contextmanager
def hub_directory(directory: Path) -> Iterator[Path]:
    """The token file, locked."""
    path = directory / TOKENS
    if not path.exists():
        raise click.ClickException(
            f"{directory} is not the directory of a hub; start a hub in it, or select another --root-directory"
        )
    try:
        with locked(directory):
            yield path
    except Unusable as error:
        raise click.ClickException(str(error)) from None
    except OSError as error:
        raise click.ClickException(f"cannot use {path}: {(error.strerror or str(error)).lower()}") from None


def create(directory: Path, name: str, groups: Sequence[str], lasting: timedelta | None, output: str) -> str:
    """The token, or a kubeconfig with it.  It cannot be shown again."""
    for text in (name, *groups):
        if not text or not text.isprintable():
            raise click.ClickException(f"{text!r} is not a valid name of a user or a group")
    cluster = known_cluster(directory / KUBECONFIG) if output == "kubeconfig" else {}
    now = datetime.now(UTC).replace(microsecond=0)
    with hub_directory(directory) as path:
        token = new_token()
        handed_out = TokenRecord(name, tuple(groups), now, now + lasting if lasting else None)
        write_tokens(path, read_tokens(path) | {token_hash(token): handed_out})
    return kubeconfig(cluster, name, token) if output == "kubeconfig" else f"{token}\n"


def known_cluster(path: Path) -> dict[str, Any]:
    """URL and CA of the hub, from the administrator's kubeconfig."""
    try:
        found = load([path]).find(CLUSTERS, "root")
    except CommandError:
        found = None
    if found is None:
        raise click.ClickException(f"{path} has no URL of the hub; start the hub to create it again")
    return found.body


def listed(directory: Path) -> Iterator[list[str]]:
    """Rows of a table, the header first."""
    now = datetime.now(UTC)
    with hub_directory(directory) as path:
        tokens = read_tokens(path)
    yield ["ID", "NAME", "GROUPS", "AGE", "EXPIRES"]
    for hashed, token in sorted(tokens.items(), key=lambda item: (item[1].name, item[0])):
        age = human(now - token.created) if token.created else "<unknown>"
        yield [hashed[:ID_LENGTH], token.name, ",".join(token.groups) or "<none>", age, expiry(token, now)]


def expiry(token: TokenRecord, now: datetime) -> str:
    if token.expires is None:
        return "never"
    return f"in {human(token.expires - now)}" if token.expires > now else "expired"


def revoke(directory: Path, which: Sequence[str]) -> int:
    """Number of revoked tokens.  Revokes all or, with an error, none."""
    with hub_directory(directory) as path:
        tokens = read_tokens(path)
        doomed: set[str] = set()
        for one in which:
            found = {hashed for hashed, token in tokens.items() if one in (token.name, hashed[:ID_LENGTH])}
            if not found:
                raise click.ClickException(f"no token has the id {one}, and no user {one} has a token")
            doomed |= found
        write_tokens(path, {hashed: token for hashed, token in tokens.items() if hashed not in doomed})
    return len(doomed)
