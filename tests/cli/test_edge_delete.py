"""`farflung edge delete`: what cannot be removed keeps nothing else from being removed."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from click.testing import CliRunner

from farflung.cli.main import main
from farflung.edge.registry import EdgeRegistry, EdgeSpec

ASKED = EdgeSpec(datetime.now(UTC), "process")


def test_one_that_cannot_be_removed_is_told_of_and_the_others_go(tmp_path: Path) -> None:
    registry = EdgeRegistry(tmp_path / "home")
    for name in ("broken", "florin", "guilder"):
        registry.create(name, ASKED)
    registry.edge("broken").containers.touch()
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "podman").write_text("#!/not/there\n")
    (programs / "podman").chmod(0o755)
    environment = {"FARFLUNG_HOME": str(tmp_path / "home"), "PATH": str(programs)}

    ended = CliRunner().invoke(main, ["edge", "delete", "--all"], env=environment)

    assert ended.exit_code == 1, ended.output
    told, *deleted = ended.output.splitlines()
    assert told.startswith("Error: edge broken cannot be deleted: ")
    assert told.endswith("podman: No such file or directory")
    assert deleted == ["edge florin deleted", "edge guilder deleted"]
    assert [edge.name for edge in registry.all()] == ["broken"]

    (programs / "podman").unlink()
    ended = CliRunner().invoke(main, ["edge", "delete", "broken"], env=environment)
    assert (ended.exit_code, ended.output, registry.all()) == (0, "edge broken deleted\n", [])
