"""The selection of a runtime, tested with programs that answer like podman."""

import io
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from farflung.edge.runtimes.base import Runtime
from farflung.edge.runtimes.podman import Podman
from farflung.edge.runtimes.podman_arguments import InstanceIdentity
from farflung.edge.runtimes.process import ProcessRuntime
from farflung.edge.runtimes.selection import PodmanUnusable, find_podman, remove_containers, select_runtime
from farflung.lib.klog import Logger

NOT_FOUND = 'Error: runc: exec: "/farflung-probe": stat /farflung-probe: no such file or directory'
Pretend = Callable[..., Path]


def now() -> datetime:
    return datetime(2026, 11, 16, tzinfo=UTC)


@pytest.fixture
def pretend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pretend:
    """Put a fake podman on the PATH.  The returned file lists its calls."""

    def put(*, version: str = "5.4.2", info: int = 0, run: int = 127, error: str = NOT_FOUND, left: str = "") -> Path:
        asked = tmp_path / "asked"
        program = tmp_path / "bin" / "podman"
        program.parent.mkdir()
        program.write_text(
            f"""#!/bin/sh
echo "$@" >> {asked}
case "$1" in
  info) echo '{{"version": {{"Version": "{version}"}}}}'; echo 'Error: no user namespaces' >&2; exit {info} ;;
  run) echo '{error}' >&2; exit {run} ;;
  pod) [ "$2" = ps ] && echo podpod ;;
  ps) printf '{left}' ;;
  secret) [ "$2" = ls ] && echo other && echo "{InstanceIdentity.of(tmp_path / "edge", "").edge_prefix}old-1" ;;
esac
exit 0
"""
        )
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
        return asked

    return put


async def chosen(wanted: str, directory: Path, log: io.StringIO) -> Runtime:
    return await select_runtime(wanted, directory, lambda: ProcessRuntime(directory, now), "life", now, Logger(log))


async def test_podman_is_chosen_where_a_container_gets_as_far_as_it_can_without_an_image(
    pretend: Pretend, tmp_path: Path
) -> None:
    pretend()
    log = io.StringIO()
    runtime = await chosen("auto", tmp_path / "edge", log)
    try:
        assert isinstance(runtime, Podman)
        assert runtime.name == "podman://5.4.2"
    finally:
        await runtime.close()
    assert list((tmp_path / "edge").iterdir()) == []


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        ({"info": 125}, "`podman info` failed: no user namespaces"),
        ({"version": "3.4.4"}, "podman 3.4.4 is too old; 4.3 or newer is required"),
        ({"version": '"', "info": 0}, "`podman info` printed unexpected output"),
        (
            {"run": 126, "error": "Error: OCI permission denied"},
            "podman cannot start containers: OCI permission denied",
        ),
        ({"run": 0, "error": ""}, "podman cannot start containers: podman printed no error"),
    ],
)
async def test_without_a_working_podman_the_process_runtime_is_selected_and_the_reason_logged(
    pretend: Pretend, tmp_path: Path, answers: dict[str, object], reason: str
) -> None:
    pretend(**answers)
    log = io.StringIO()
    runtime = await chosen("auto", tmp_path / "edge", log)
    assert isinstance(runtime, ProcessRuntime)
    assert reason in log.getvalue()
    with pytest.raises(PodmanUnusable) as refused:
        await chosen("podman", tmp_path / "edge", log)
    assert str(refused.value) == reason


async def test_a_missing_podman_is_an_error_only_if_it_was_requested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    log = io.StringIO()
    assert isinstance(await chosen("auto", tmp_path / "edge", log), ProcessRuntime)
    assert 'reason="podman is not on the PATH"' in log.getvalue()
    with pytest.raises(PodmanUnusable):
        await find_podman(tmp_path / "edge")
    assert await remove_containers(tmp_path / "edge") == 0


async def test_processes_are_chosen_without_looking_for_podman(pretend: Pretend, tmp_path: Path) -> None:
    asked = pretend()
    assert isinstance(await chosen("process", tmp_path / "edge", io.StringIO()), ProcessRuntime)
    assert not asked.exists()


async def test_a_directory_that_podman_would_take_for_something_else_is_not_for_podman(
    pretend: Pretend, tmp_path: Path
) -> None:
    pretend()
    with pytest.raises(PodmanUnusable, match="path"):
        await find_podman(tmp_path / "a:b")


async def test_only_containers_of_earlier_instances_are_removed(pretend: Pretend, tmp_path: Path) -> None:
    asked = pretend(left="aaa\\nbbb\\n")
    directory = tmp_path / "edge"
    assert await remove_containers(directory) == 3
    identity = InstanceIdentity.of(directory, "")
    assert asked.read_text().splitlines() == [
        f"pod ps --quiet --no-trunc --filter=label=io.farflung.edge={identity.edge}",
        "pod rm --force --ignore --time=0 podpod",
        f"ps --all --quiet --no-trunc --filter=label=io.farflung.edge={identity.edge}",
        "rm --force --ignore --time=0 --volumes aaa bbb",
        "secret ls --format={{.Name}}",
        f"secret rm {identity.edge_prefix}old-1",
    ]
