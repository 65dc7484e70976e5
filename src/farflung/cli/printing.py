"""How commands print: tables for people, JSON and YAML for programs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import orjson
import yaml

TABLE: Final = "table"
FORMATS: Final = (TABLE, "json", "yaml")
NONE: Final = "<none>"


def table(rows: Iterable[Sequence[str]]) -> str:
    """Rows of the same length, the head first."""
    kept = list(rows)
    widths = [max(map(len, column)) for column in zip(*kept, strict=True)]
    lines = ("   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in kept)
    return "\n".join(lines)


def machine_readable(document: Any, output: str) -> str:
    if output == "json":
        return orjson.dumps(document, option=orjson.OPT_INDENT_2).decode()
    text: str = yaml.safe_dump(document, sort_keys=False, allow_unicode=True)
    return text.removesuffix("\n")


def pairs(values: Iterable[tuple[str, str]]) -> str:
    """Labels: `a=b,c=d`"""
    return ",".join(f"{key}={value}" for key, value in sorted(values)) or NONE
