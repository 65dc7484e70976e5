"""`kubectl kcp`: bind APIs, list claims, convert CustomResourceDefinitions to schemas; and `kubectl kcp ws`."""

from __future__ import annotations

import sys

from farflung.cli.plugins import commands
from farflung.cli.plugins.bindings import BIND, CLAIMS
from farflung.cli.plugins.commands import LOGGING, PluginCommand
from farflung.cli.plugins.snapshot import CRD
from farflung.cli.plugins.workspace import WORKSPACE
from farflung.lib.version import __version__

ABOUT = """Commands for workspaces and the APIs in them, for kcp and for Farflung's hub, which speaks as kcp does.

This command provides KCP specific sub-command for kubectl."""


KCP = PluginCommand(
    "kcp",
    "kubectl plugin for KCP",
    long=ABOUT,
    version=f"farflung-{__version__}",
    inherited=LOGGING,
    commands=(BIND, CLAIMS, CRD, WORKSPACE),
)


def main() -> int:
    return commands.main(KCP, sys.argv[1:], "error")
