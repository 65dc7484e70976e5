"""Documents that users of kcp, KubeStellar and the global scheduler walk by: `tests/e2e/seeds/*.txt`, typed as they
stand there, with other words for the programs.

A line `$ …` is a command of the document, and what follows is what the document prints: that is compared.  `% …` is one
that the document leaves to its reader, or to a page that it includes.  `# …` is a comment.  A command that prints
nothing in the document has to succeed.  In a log, `...` may be ours: the programs of today say more in between.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from seed_session import ANYTHING, Session, steps

DOCUMENTS = Path(__file__).parents[1] / "e2e" / "seeds"
#: (in the document, here); `kcp start` has been typed before
PROGRAMS = [
    (r"^\$ go run cmd/scheduler/main\.go", "$ farflung scheduler"),
    (r"^\$ go run \./cmd/", "$ farflung "),
    (r"^\$ kind (create cluster .*)", r"$ farflung edge \1 --runtime process"),
    (r"<path to kcp admin kubeconfig>", "$KUBECONFIG"),
    (r"<verbosity \(default 2\)>", "2"),
    (r"(?<=ws )2rp1gztc6m5b8b7r-mb-58f7e799-\S+", "$FLORIN"),
    (r"(?<=ws )2rp1gztc6m5b8b7r-mb-31e5fa4d-\S+", "$GUILDER"),
]
#: not of the programs: what waits for them is not needed here, and what was written eleven times is written once
LEFT_OUT = [(r"^\$ sleep \d+\n", ""), (r"\bgeneration: 11$", "generation: 1")]


def transcript(name: str) -> str:
    """Of a document, with other words for the programs."""
    text = re.sub(r"^# .*\n", "", (DOCUMENTS / name).read_text(), flags=re.MULTILINE)
    for there, here in [*LEFT_OUT, *PROGRAMS]:
        text = re.sub(there, here, text, flags=re.MULTILINE)
    return re.sub(r"^% ", "$ ", text, flags=re.MULTILINE)


def type_document(session: Session, name: str, adjust: Callable[[str], str] = str) -> None:
    """Types a document.  `adjust` makes comparable what is known to be different."""
    for step in steps(transcript(name)):
        session.type(f"$ {step.command}\n{step.output or ANYTHING}", adjust)
