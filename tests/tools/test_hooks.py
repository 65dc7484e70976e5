"""What runs before a commit and after a push is what `make` runs."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]


def recipe(target: str) -> list[str]:
    """The commands of a target of the Makefile."""
    found = re.search(rf"^{target}:.*\n((?:\t.*\n)*)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert found is not None
    return [line.strip().replace("$(BIN)", ".venv/bin") for line in found[1].splitlines()]


def test_hooks_run_the_commands_of_make_lint() -> None:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    hooks = [hook for repository in config["repos"] for hook in repository["hooks"]]
    assert [hook["entry"] for hook in hooks] == recipe("lint")
    assert all(hook["always_run"] and not hook["pass_filenames"] for hook in hooks)


def test_the_workflow_runs_what_ci_runs() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    assert [step["run"] for step in steps if "run" in step] == ["bash .ci/run"]
