"""The output of `farflung customize`."""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from farflung.cli.output import yaml_text
from farflung.machinery.errors import Obj


def printed(found: Sequence[Obj], output: str) -> str:
    """For `kubectl apply -f -`."""
    if output == "json":
        whole = found[0] if len(found) == 1 else {"apiVersion": "v1", "kind": "List", "items": list(found)}
        return orjson.dumps(whole, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE).decode()
    return "---\n".join(map(yaml_text, found))
