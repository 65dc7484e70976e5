"""What both demos share: a directory with everything that they create, a hub, and the cleanup."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Final, TypeVar

import click
import orjson

from farflung.apis.names import Collection
from farflung.cli.credentials import KUBECONFIG
from farflung.cli.output import ProgressReporter, show_progress, table
from farflung.cli.settings import DemoOptions
from farflung.client.errors import AlreadyExists, ClientError, KubeconfigError, NotFound, Unreachable
from farflung.client.kubeconfig import load
from farflung.client.rest import Client
from farflung.edge.ports import PortUnavailable
from farflung.lib.background import Background, Process
from farflung.machinery.errors import Obj

T = TypeVar("T")

TIMEOUT: Final = 120.0  #: seconds of one wait
POLL: Final = 0.05
AS_TABLE: Final = "application/json;as=Table;v=v1;g=meta.k8s.io"
STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP)  #: beside SIGINT
KUBECTL_WS: Final = str(Path(sys.executable).with_name("kubectl-ws"))
EDGES: Final = "edges.kubeconfig"  #: the contexts of the clusters


class DemoError(Exception):
    """The text says what to do."""


@dataclass(frozen=True, slots=True)
class DemoDirectory:
    """The directory with everything that the demo creates."""

    directory: Path

    @property
    def hub(self) -> Path:
        return self.directory / "hub"

    @property
    def edges(self) -> Path:
        return self.directory / EDGES

    def hub_options(self, path: str) -> list[str]:
        """Options of commands for a workspace of the demo's hub."""
        return ["--kubeconfig", str(self.hub / KUBECONFIG), "--context", "base", "--workspace", path]

    def log(self, name: str) -> Path:
        return self.directory / f"{name}.log"

    @property
    def background(self) -> Background:
        return Background(self.directory / "processes.json")

    @property
    def environment(self) -> dict[str, str]:
        """The demo's edges are separate from the user's."""
        kept = {name: value for name, value in os.environ.items() if name != "KUBECONFIG"}
        return {**kept, "FARFLUNG_HOME": str(self.directory / "home")}


def place() -> DemoDirectory:
    home = os.environ.get("FARFLUNG_HOME")
    return DemoDirectory((Path(home) if home else Path.home() / ".farflung") / "demo")


def farflung(*words: str) -> list[str]:
    return [sys.executable, "-m", "farflung", *words]


# --- start and cleanup ----------------------------------------------------------------------------


def run(kind: type[Demo], options: DemoOptions) -> None:
    """Play a demo and remove everything at the end, unless it is kept.  Raises click.ClickException."""
    where = place()
    if options.replace and clean(where):
        click.echo("Stopped and removed the earlier demo.", err=True)
    _make(where, kind.command)
    kept = False
    try:
        asyncio.run(_interruptible(_play(kind(where, options))))
        kept = options.keep
    except (DemoError, PortUnavailable, ClientError, OSError) as error:
        raise click.ClickException(f"{error}{_logs(where)}") from None
    except KeyboardInterrupt:
        raise click.Abort from None
    finally:
        if not kept:
            with _signals_ignored():
                if where.background.processes():
                    with contextlib.suppress(OSError):  # the terminal may be closed
                        click.echo("Stopping the demo …", err=True)
                clean(where)
    if not kept:
        again = f"`{command_name()} {kind.command} --keep` leaves it running."
        click.echo(f"Stopped and removed the demo. {again}", err=True)


async def _play(demo: Demo) -> None:
    began = time.monotonic()
    async with demo.stack:
        with show_progress(sys.stderr) as demo.steps:
            await demo.play()
    click.echo(f"\n{demo.headline}, {time.monotonic() - began:.1f} s after the start.\n")
    for command, answer in demo.outputs:
        click.secho(f"$ {command}", bold=True)
        click.echo(f"{answer.rstrip()}\n")
    if demo.options.keep:
        click.echo("\nThe demo keeps running. Try:\n")
        for command in demo.advice():
            click.echo(f"  {command}")
        click.echo(f"\n`{command_name()} demo --stop` stops it and removes {demo.where.directory}.")


def _make(where: DemoDirectory, command: str) -> None:
    """Fails if a demo exists."""
    try:
        where.directory.mkdir(mode=0o700, parents=True)
    except FileExistsError:
        raise click.ClickException(
            f"an earlier demo is in {where.directory}: `{command_name()} demo --stop` stops and removes it, "
            f"and `{command_name()} {command} --replace` does so before it starts"
        ) from None
    except OSError as error:
        raise _unusable(where, error) from None


def _unusable(where: DemoDirectory, error: OSError) -> click.ClickException:
    return click.ClickException(f"cannot use {where.directory}: {(error.strerror or str(error)).lower()}")


def command_name() -> str:
    """The command to type: `make demo` works without farflung on the PATH."""
    typed = Path(sys.argv[0])
    return str(typed) if typed.name == "farflung" and not shutil.which("farflung") else "farflung"


def stop() -> None:
    there = clean(place())
    click.echo("Stopped and removed the demo." if there else "No demo is running.")


def clean(where: DemoDirectory) -> bool:
    """Stop and remove a demo; False if there is none.  Raises click.ClickException if the directory is not
    accessible."""
    try:
        where.directory.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise _unusable(where, error) from None
    where.background.stop()
    if (where.directory / "home").exists():
        _call(farflung("edge", "delete", "--all"), where.environment)
    shutil.rmtree(where.directory, ignore_errors=True)
    return True


def _call(command: list[str], environment: dict[str, str]) -> None:
    subprocess.run(  # noqa: S603
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        check=False,
    )


@contextlib.contextmanager
def _signals_ignored() -> Iterator[None]:
    """Ignore signals during the cleanup."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, *STOP_SIGNALS)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _logs(where: DemoDirectory) -> str:
    """The last errors in the logs."""
    shown = []
    for file in sorted(where.directory.glob("*.log")):
        lines = file.read_text(errors="replace").splitlines()
        worth = [line for line in lines if line[:1] in ("E", "W") or "rror" in line]
        shown += [f"\n  {file.stem}: {line[:300]}" for line in worth[-2:]]
    return "".join(shown)


async def _interruptible(play: Coroutine[None, None, None]) -> None:
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, task.cancel)
    try:
        await play
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    except ExceptionGroup as errors:
        raise _first(errors) from None


def _first(error: Exception) -> Exception:
    """The first error of a group."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


# --- the demo -------------------------------------------------------------------------------------


@dataclass(slots=True)
class Demo:
    """A hub, and operations that demos have in common."""

    command: ClassVar[str] = "demo"
    headline: ClassVar[str] = ""  #: of the outputs

    where: DemoDirectory
    options: DemoOptions
    steps: ProgressReporter = field(init=False)
    outputs: list[tuple[str, str]] = field(default_factory=list)  #: commands and their output
    stack: contextlib.AsyncExitStack = field(default_factory=contextlib.AsyncExitStack)
    _hub: Client | None = None

    async def play(self) -> None:
        raise NotImplementedError

    def advice(self) -> Iterator[str]:
        """Commands to try."""
        yield f"export KUBECONFIG={self.where.hub / KUBECONFIG}"
        yield f"export PATH={Path(sys.executable).parent}:$PATH"

    @property
    def hub(self) -> Client:
        assert self._hub is not None
        return self._hub

    async def start_hub(self) -> None:
        with self.steps.step("Start the hub and its controllers"):
            process = self.start("hub", "start", "--root-directory", str(self.where.hub), "--port", "0")
            path = self.where.hub / KUBECONFIG

            async def connected() -> Client | None:
                if not process.is_alive:
                    raise DemoError("the hub ended")
                if not path.exists():
                    return None
                client = self._hub or await self.client(path, "base")
                await client.raw("/readyz")
                return client

            self._hub = await self.until(connected, "the hub")

    def start(self, name: str, *words: str) -> Process:
        where = self.where
        return where.background.start(name, farflung(*words), where.log(name), where.environment)

    async def client(self, path: Path, context: str = "") -> Client:
        access = load(str(path), context=context)
        return Client(await self.stack.enter_async_context(access.transport()), access.prefix, "farflung-demo")

    async def output_of(self, words: str, path: str) -> str:
        """The output of a farflung command in a workspace."""
        _, output, _ = await self._run(farflung(*words.split(), *self.where.hub_options(path)))
        return output.rstrip()

    async def call(self, failure: str, command: list[str]) -> None:
        """Raises DemoError with the message of the command if it fails."""
        code, _, errors = await self._run(command)
        if code:
            why = errors.rpartition("Error: ")[2].strip()
            raise DemoError(f"{failure}: {why}")

    async def _run(self, command: list[str]) -> tuple[int | None, str, str]:
        """Exit code, output and errors."""
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=self.where.environment,
            start_new_session=True,
        )
        try:
            output, errors = await process.communicate()
        except asyncio.CancelledError:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGINT)  # the command cleans up
            await process.wait()
            raise
        return process.returncode, output.decode(errors="replace"), errors.decode(errors="replace")

    async def workspace(self, path: str) -> None:
        """Create it if it does not exist, by the command behind `kubectl ws create`."""
        parent, _, name = path.rpartition(":")
        file = str(self.where.hub / KUBECONFIG)
        server = f"{load(file, context='base').server}/clusters/{parent}"
        words = ["create", name, "--ignore-existing", "--kubeconfig", file, "--context", "base", "--server", server]
        await self.call(f"the workspace {path} could not be created", [KUBECTL_WS, *words])

    async def make(self, client: Client, collection: Collection, obj: Obj) -> None:
        """Retries until the API is served: an APIBinding takes a moment."""

        async def created() -> bool:
            with contextlib.suppress(AlreadyExists):
                await client.create(collection, obj, obj["metadata"].get("namespace", ""))
            return True

        await self.until(created, f"{obj['kind']} {obj['metadata']['name']}")

    async def until(self, look: Callable[[], Awaitable[T | None]], what: str) -> T:
        """Retries until the result is true; missing objects and unreachable servers are retried too."""
        deadline, reason = time.monotonic() + TIMEOUT, ""
        while time.monotonic() < deadline:
            try:
                found = await look()
                if found:
                    return found
            except (NotFound, Unreachable, KubeconfigError, OSError) as error:
                reason = f": {error}"
            await asyncio.sleep(POLL)
        raise DemoError(f"{what} is not there after {TIMEOUT:.0f} s{reason}")


async def listed(client: Client, collection: Collection, *, wide: bool = False) -> str:
    """A table like kubectl's."""
    answer = orjson.loads(await client.raw(f"{collection.path()}?includeObject=Metadata", accept=AS_TABLE))
    shown = [at for at, column in enumerate(answer["columnDefinitions"]) if wide or not column.get("priority")]
    rows = [["NAMESPACE", *(answer["columnDefinitions"][at]["name"].upper() for at in shown)]]
    for row in answer["rows"]:
        rows.append([row["object"]["metadata"]["namespace"], *(str(row["cells"][at]) for at in shown)])
    return table(rows)
