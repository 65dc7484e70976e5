"""Commands that are called as kinds are: kubectl's other words for them will do, and `TYPE/NAME` for `TYPE NAME`."""

from __future__ import annotations

from typing import Final

import click

SPELLINGS: Final = {
    "po": "pod",
    "pods": "pod",
    "alloc": "allocation",
    "allocations": "allocation",
    "allocations.globalscheduler.com": "allocation",
    "epl": "placement",
    "placements": "placement",
    "edgeplacement": "placement",
    "edgeplacements": "placement",
    "edgeplacements.edge.kcp.io": "placement",
}


class Kinds(click.Group):
    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        kind, slash, name = args[0].partition("/")
        found = SPELLINGS.get(kind, kind)
        if found not in self.commands:
            return super().resolve_command(ctx, args)
        return super().resolve_command(ctx, [found, *([name] if slash else []), *args[1:]])
