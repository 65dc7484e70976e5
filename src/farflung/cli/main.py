"""The command `farflung`: its commands in sections, and completion for shells."""

from __future__ import annotations

from typing import Any, Final

import click

from farflung.cli import access_commands as access
from farflung.cli import inspect_commands as inspect
from farflung.cli import run_commands as run
from farflung.cli import store_commands as store
from farflung.cli.edge import edge
from farflung.lib import memory
from farflung.lib.errors import UserError
from farflung.lib.packages import WrongPackage
from farflung.lib.version import __version__

SHELLS: Final = ("bash", "zsh", "fish")


@click.command(short_help="Print the completion script of a shell.")
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print a script that completes commands and options in bash, zsh or fish.

    \b
    In bash:  source <(farflung completion bash)
    In zsh:   source <(farflung completion zsh)
    In fish:  farflung completion fish | source
    """
    from click.shell_completion import get_completion_class

    script = get_completion_class(shell)
    assert script is not None
    click.echo(script(main, {}, "farflung", "_FARFLUNG_COMPLETE").source())


#: commands by section of `farflung --help`
SECTIONS: Final = {
    "Run Commands": {
        "start": run.start,
        "hub": run.hub,
        "controllers": run.controllers,
        "scheduler": run.scheduler,
        "mailbox-controller": run.mailbox_controller,
        "placement-translator": run.placement_translator,
        "status-summarizer": run.status_summarizer,
        "global-scheduler": run.global_scheduler,
        "demo": run.demo,
    },
    "Inspect Commands": {
        "status": inspect.status,
        "explain": inspect.explain,
        "trace": inspect.trace,
        "plan": inspect.plan,
        "customize": inspect.customize,
        "list-upsynced": inspect.list_upsynced,
    },
    "Edge Commands": {
        "edge": edge,
        "syncer": run.syncer,
    },
    "Workspace Commands": {"import-kinds": access.import_kinds},
    "Access Commands": {
        "syncer-gen": access.syncer_gen,
        "syncer-revoke": access.syncer_revoke,
        "token": access.token,
        "certs": access.certs,
    },
    "Store Commands": {
        "rekey": store.rekey,
        "repair": store.repair,
    },
    "Other Commands": {"completion": completion},
}


class SectionedGroup(click.Group):
    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (WrongPackage, UserError) as error:
            raise click.ClickException(str(error)) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """One column for all sections."""
        width = max(map(len, self.commands))
        limit = formatter.width - 6 - width
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                rows = [(name.ljust(width), one.get_short_help_str(limit)) for name, one in commands.items()]
                formatter.write_dl(rows)


@click.group(cls=SectionedGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="farflung")
def main() -> None:
    """Farflung places Kubernetes workloads on many far-flung clusters from one small hub."""
    memory.collect_seldom()
    memory.return_large_blocks()


for _commands in SECTIONS.values():
    for _name, _command in _commands.items():
        main.add_command(_command, _name)
