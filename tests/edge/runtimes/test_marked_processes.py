"""Killing processes by their environment."""

import os
import subprocess
import sys

import pytest

from farflung.edge.runtimes import marked_processes


@pytest.mark.parametrize("as_program", [False, True])
def test_only_processes_with_the_mark_are_killed(as_program: bool) -> None:
    mark = f"FARFLUNG_TEST={os.getpid()}"

    def started(value: str) -> subprocess.Popen[bytes]:
        environment = {"PATH": os.environ["PATH"], "FARFLUNG_TEST": value}
        return subprocess.Popen(["/bin/sh", "-c", "echo; sleep 1000"], stdout=subprocess.PIPE, env=environment)

    with started(str(os.getpid())) as marked, started(f"{os.getpid()}0") as other:
        for process in (marked, other):
            assert process.stdout is not None
            process.stdout.readline()
        if as_program:
            subprocess.run([sys.executable, "-I", marked_processes.__file__, mark], check=True)
        else:
            marked_processes.kill(mark)
        assert marked.wait(60) == -9
        assert other.poll() is None
        marked_processes.kill(f"{mark}0")
