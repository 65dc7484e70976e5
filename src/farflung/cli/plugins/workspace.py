"""`kubectl ws`: its commands and help."""

from __future__ import annotations

import sys

from farflung.cli.plugins import commands
from farflung.cli.plugins.commands import PluginCommand
from farflung.cli.plugins.creation import create, create_context, tree
from farflung.cli.plugins.flags import BOOL, CONNECTION, KUBECONFIG, LOGGING, Flag
from farflung.cli.plugins.navigation import current, use, use_given

SHORT = Flag("short", "Print only the name of the workspace, e.g. for integration into the shell prompt", BOOL)

EXAMPLES = """
\t# shows the workspace you are currently using
\tkubectl workspace .

\t# enter a given workspace (this will change the current-context of your current KUBECONFIG)
\tkubectl workspace use my-workspace

\t# short-hand for the use syntax
\tkubectl workspace my-workspace

\t# enter a given absolute workspace
\tkubectl workspace root:default:my-workspace

\t# enter the parent workspace
\tkubectl workspace ..

\t# enter the previous workspace
\tkubectl workspace -

\t# go to your home workspace
\tkubectl workspace

\t# create a workspace and immediately enter it
\tkubectl workspace create my-workspace --enter

\t# create a context with the current workspace, e.g. root:default:my-workspace
\tkubectl workspace create-context

\t# create a context with the current workspace, named context-name
\tkubectl workspace create-context context-name
"""

COMMANDS = (
    PluginCommand(
        "create",
        "Creates a new workspace",
        create,
        example="kcp workspace create <workspace name> [--type=<type>] "
        "[--enter [--ignore-not-ready]] --ignore-existing",
        flags=(
            Flag("enter", "Immediately enter the created workspace", BOOL),
            Flag(
                "ignore-existing",
                "Ignore if the workspace already exists. Requires none or absolute type path.",
                BOOL,
            ),
            Flag(
                "location-selector",
                "A label selector to select the scheduling location of the created workspace.",
            ),
            Flag("type", "A workspace type. The default type depends on where this child workspace is created."),
            KUBECONFIG,
        ),
    ),
    PluginCommand(
        "create-context [<context-name>] [--overwrite]",
        "Create a kubeconfig context for the current workspace",
        create_context,
        example="kcp workspace create-context",
        flags=(Flag("overwrite", "Overwrite the context if it already exists", BOOL), KUBECONFIG),
    ),
    PluginCommand(
        "current [--short]",
        "Print the current workspace. Same as 'kubectl ws .'.",
        current,
        example="kcp workspace current",
        flags=(SHORT, KUBECONFIG),
    ),
    PluginCommand(
        "tree",
        "Print the current workspace tree.",
        tree,
        example="kcp workspace tree",
        flags=(Flag("full", "Show full workspace names", BOOL, "f"), KUBECONFIG),
    ),
    PluginCommand(
        "use <workspace>|..|.|-|~|<root:absolute:workspace>",
        "Uses the given workspace as the current workspace. "
        "Using - means previous workspace, .. means parent workspace, . mean current, ~ means home workspace",
        use_given,
        flags=(SHORT, KUBECONFIG),
    ),
)

WORKSPACE = PluginCommand(
    "workspace [create|create-context|use|current|<workspace>|..|.|-|~|<root:absolute:workspace>]",
    "Manages KCP workspaces",
    use,
    example=EXAMPLES,
    aliases=("ws", "workspaces"),
    flags=(SHORT, KUBECONFIG),
    inherited=CONNECTION,
    commands=COMMANDS,
)


def main() -> int:
    """`kubectl ws`, `kubectl workspace` and `kubectl workspaces`."""
    root = WORKSPACE._replace(inherited=(*LOGGING, *CONNECTION))
    return commands.main(root, sys.argv[1:], "Error")
