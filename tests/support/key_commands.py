"""A key management service as a shell script: it rotates letters, and records its arguments."""

from __future__ import annotations

from pathlib import Path

SCRIPT = """#!/bin/sh
echo "$@" >> "$0.arguments"
read line || exit 3
for verb; do :; done
case "$verb" in
    wrap) echo "vault:v1:$line" | tr A-Za-z N-ZA-Mn-za-m ;;
    unwrap) echo "$line" | tr A-Za-z N-ZA-Mn-za-m | sed s/^vault:v1:// ;;
esac
"""


def write_command(path: Path, script: str = SCRIPT) -> Path:
    path.write_text(script)
    path.chmod(0o700)
    return path


def arguments_of(command: Path) -> list[str]:
    """Of each call."""
    return Path(f"{command}.arguments").read_text().splitlines()
