"""Documents that users of kcp, KubeStellar and the global scheduler walk by: `tests/e2e/seeds/*.txt`.

    $ …     a command of the document; `kcp start` has been typed before
    =| …    is typed instead of it; nothing: it is left out
    % …     a command that the document leaves to its reader, or has in another page
    …       a line that the document prints, and so do we
    -| …    a line that only the document prints
    +| …    a line that only we print
    # …     a comment, and the reason of the differences that follow

What differs from a document has a reason right before it, unless the document does not show what a command prints.
What does not count, such as ages and UIDs, is in `seed_session.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from seed_session import CONTINUED, Session

DOCUMENTS = Path(__file__).parents[1] / "e2e" / "seeds"
INSTEAD, THERE, HERE = "=|", "-|", "+|"
REASON = "# "


def transcript(document: str) -> str:
    """What is typed here, and printed.  Raises ValueError if a difference has no reason."""
    return "".join(f"{line}\n" for command in _commands(document) for line in _here(*command))


def _commands(document: str) -> Iterator[tuple[list[str], list[str]]]:
    """Each with what follows it."""
    command: list[str] = []
    output: list[str] = []
    end: str | None = None  #: the line that a command goes on to
    for line in document.splitlines():
        if end is not None:
            command.append(line)
            end = None if line == end else end
        elif line.startswith(("$ ", "% ")):
            yield command, output
            command, output = [line], []
            continued = CONTINUED.search(line)
            end = continued[1] if continued else None
        else:
            output.append(line)
    yield command, output


def _here(command: list[str], output: list[str]) -> list[str]:
    typed = [line.replace("% ", "$ ", 1) for line in command[:1]] + command[1:]
    shown = any(not line.startswith((REASON, HERE, INSTEAD)) for line in output)
    printed: list[str] = []
    before = ""
    for line in output:
        mark, text = line[:2], line[3:]
        differs = mark == INSTEAD or (mark in (THERE, HERE) and shown)
        if differs and not before.startswith((REASON, THERE, HERE)):
            raise ValueError(f"no reason: {line}")
        if mark == INSTEAD:
            typed = [f"$ {text}"] if text else []
        elif mark == HERE:
            printed.append(text)
        elif mark != THERE and not line.startswith(REASON):
            printed.append(line)
        before = line
    return typed + printed


def type_document(session: Session, name: str, adjust: Callable[[str], str] = str) -> None:
    """Types a document.  `adjust` makes comparable what is known to be different."""
    session.type(transcript((DOCUMENTS / name).read_text()), adjust)
