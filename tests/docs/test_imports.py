"""No two folders import each other (ADR 1).  import-linter checks the layers, this the pairs."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

SOURCES = Path(__file__).parents[2] / "src"


def imported_modules(path: Path) -> Iterator[str]:
    """The names after `import`, and after `from … import`, each of which may be a module."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def folder_of(name: str) -> Path | None:
    """The folder of a module, or of the module that has a name; None for other packages."""
    path = SOURCES.joinpath(*name.split("."))
    for found in (path, path.parent):
        if found.is_dir():
            return found
        if found.with_suffix(".py").exists():
            return found.parent
    return None


def test_no_two_folders_import_each_other() -> None:
    imports = {
        (path.parent, folder)
        for path in (SOURCES / "farflung").rglob("*.py")
        for name in imported_modules(path)
        if name.startswith("farflung.") and (folder := folder_of(name)) is not None and folder != path.parent
    }
    assert len(imports) > 100
    mutual = [(str(one.relative_to(SOURCES)), str(other.relative_to(SOURCES))) for one, other in imports]
    assert sorted(pair for pair in mutual if pair[::-1] in mutual and pair[0] < pair[1]) == []
