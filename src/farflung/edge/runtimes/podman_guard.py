"""Containers live in no process of ours.  So that they end with us however we end, another process waits for that."""

from __future__ import annotations

import asyncio
from asyncio.subprocess import DEVNULL, PIPE, Process
from contextlib import suppress
from typing import Final

from farflung.edge.runtimes.podman_arguments import Identity

#: Waits for a line or for the end of whoever should write it; the latter ends the containers.  A few times, because
#: one may have been on its way.
SCRIPT: Final = """
trap '' HUP INT TERM
read -r line && exit 0
program=$1 filter=$2 prefix=$3
for turn in 1 2 3; do
  "$program" pod ps --quiet --no-trunc --filter="$filter" | while read -r id; do
    "$program" pod rm --force --ignore --time=0 "$id"
  done
  "$program" ps --all --quiet --no-trunc --filter="$filter" | while read -r id; do
    "$program" rm --force --ignore --time=0 --volumes "$id"
  done
  "$program" secret ls --format '{{.Name}}' | while read -r name; do
    case "$name" in "$prefix"*) "$program" secret rm "$name" ;; esac
  done
  sleep 1
done
"""


class Guard:
    """Removes the containers of an instance when this process is gone, unless it was dismissed."""

    def __init__(self, process: Process) -> None:
        self._process = process

    @classmethod
    async def post(cls, program: str, identity: Identity) -> Guard:
        arguments = (program, identity.instance_filter, identity.instance_prefix)
        return cls(
            await asyncio.create_subprocess_exec(
                *("/bin/sh", "-c", SCRIPT, "farflung-guard", *arguments),
                stdin=PIPE,
                stdout=DEVNULL,
                stderr=DEVNULL,
                start_new_session=True,
            )
        )

    async def dismiss(self) -> None:
        assert self._process.stdin is not None
        with suppress(ConnectionError):
            self._process.stdin.write(b"dismissed\n")
            await self._process.stdin.drain()
        await self._process.wait()
