"""One name, one idea: no two public classes share a name (CONTRIBUTING.md, "Names and texts")."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

SOURCES = Path(__file__).parents[2] / "src"


def test_no_two_public_classes_share_a_name() -> None:
    defined: dict[str, list[str]] = defaultdict(list)
    for path in sorted(SOURCES.rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                defined[node.name].append(str(path.relative_to(SOURCES)))
    assert len(defined) > 500
    assert {name: paths for name, paths in defined.items() if len(paths) > 1} == {}
