"""Files that change while a process works by them: however they are written, and whatever is wrong with them."""

from __future__ import annotations

import asyncio
import io
import os
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import orjson
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from farflung.lib.klog import Logger
from farflung.machines.files import reloader as reloading
from farflung.machines.files.configuration import FileCopy, SchedulerConfiguration
from farflung.machines.files.reloader import NO_COPY, Reloader
from farflung.machines.files.scheduler_files import SchedulerFiles, SchedulerFilesError

SAMPLES = Path(__file__).parents[3] / "conf"
POLICY = "edgecloud_policy.yaml"
FLAVOR_ALONE = "predicates: [{name: Flavor}]\npriorities: []\n"
PATIENCE = 60.0
NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


class Watched:
    """A directory that is looked at all the time, and what was made of it."""

    def __init__(self, files: SchedulerFiles, kept: FileCopy) -> None:
        self.log = io.StringIO()
        self.reloading = Reloader(files, kept.read(files, NOON), Logger(self.log), kept)
        self.told: list[SchedulerConfiguration] = []

    async def until(self, condition: Callable[[], object], what: str) -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                while not condition():
                    await asyncio.sleep(0.005)
        except TimeoutError:
            pytest.fail(f"no {what}: {self.log.getvalue()}")

    async def until_filters(self, *names: str) -> None:
        await self.until(lambda: self.reloading.current.policy.filters == names, f"filters {names}")
        assert self.told[-1] == self.reloading.current

    def figures(self) -> str:
        registry = CollectorRegistry()
        registry.register(self.reloading)
        return generate_latest(registry).decode()


@asynccontextmanager
async def watched(files: SchedulerFiles, kept: FileCopy = NO_COPY) -> AsyncIterator[Watched]:
    one = Watched(files, kept)
    running = asyncio.create_task(one.reloading.run())
    try:
        with one.reloading.subscribed(one.told.append):
            yield one
        assert not running.done()
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reloading, "EVERY", 0.01)


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    return Path(shutil.copytree(SAMPLES, tmp_path / "conf"))


def overwritten(path: Path, text: str) -> None:
    path.write_text(text)


def replaced(path: Path, text: str) -> None:
    other = path.with_name(".new")
    other.write_text(text)
    other.replace(path)


def moved_away_first(path: Path, text: str) -> None:
    path.replace(path.with_name("backup~"))
    path.write_text(text)


@pytest.mark.parametrize("write", [overwritten, replaced, moved_away_first])
async def test_a_file_that_is_written_anew_counts(conf: Path, write: Callable[[Path, str], None]) -> None:
    async with watched(SchedulerFiles(str(conf))) as one:
        write(conf / POLICY, FLAVOR_ALONE)
        await one.until_filters("Flavor")
        write(conf / POLICY, FLAVOR_ALONE.replace("Flavor", "Volume"))  # of the same length
        await one.until_filters("Volume")
        assert len(one.told) == 2


async def test_a_mounted_directory_that_is_swapped_counts_as_a_whole(tmp_path: Path, conf: Path) -> None:
    """As kubelet does with ConfigMaps: files are links through `..data`, which is a link itself."""
    mount = tmp_path / "mount"
    mount.mkdir()
    first = Path(shutil.copytree(conf, mount / "..first"))
    (mount / "..data").symlink_to(first.name)
    for file in first.iterdir():
        (mount / file.name).symlink_to(Path("..data") / file.name)
    async with watched(SchedulerFiles(str(mount))) as one:
        second = Path(shutil.copytree(conf, mount / "..second"))
        (second / POLICY).write_text(FLAVOR_ALONE)
        (second / "site_infos.json").unlink()
        (second / "site_resources.json").unlink()
        (mount / "..new").symlink_to(second.name)
        (mount / "..new").replace(mount / "..data")
        shutil.rmtree(first)
        await one.until_filters("Flavor")
        assert one.reloading.current.sites == ()
        assert len(one.told) == 1


async def test_wrong_files_change_nothing_and_are_told_of_until_they_are_mended(conf: Path) -> None:
    async with watched(SchedulerFiles(str(conf))) as one:
        before = one.reloading.current
        replaced(conf / POLICY, "predicates: [{name: Luck}]")
        await one.until(lambda: "Luck" in one.reloading.problem, "problem")
        replaced(conf / POLICY, "")
        await one.until(lambda: "neither predicates nor priorities" in one.reloading.problem, "other problem")
        assert (one.reloading.current, one.told) == (before, [])
        assert one.reloading.notes() == [f"configuration: {conf / POLICY}: neither predicates nor priorities"]
        assert "farflung_configuration_last_reload_successful 0.0" in one.figures()
        assert 'farflung_configuration_reloads_total{result="failure"} 2.0' in one.figures()
        replaced(conf / POLICY, (SAMPLES / POLICY).read_text())
        await one.until(lambda: not one.reloading.problem, "end of it")
        assert (one.reloading.current, one.told, one.reloading.notes()) == (before, [], [])
        assert "farflung_configuration_last_reload_successful 1.0" in one.figures()
    said = one.log.getvalue()
    assert said.count("the files are invalid") == 2  # once each, however often they were looked at
    assert said.count("the files are valid again") == 1


async def test_a_policy_that_is_named_before_it_is_there_counts_when_it_comes(conf: Path) -> None:
    async with watched(SchedulerFiles(str(conf))) as one:
        settings = (conf / "conf.yaml").read_text()
        replaced(conf / "conf.yaml", settings.replace(POLICY, "other.yaml"))
        await one.until(lambda: one.reloading.problem == f"{conf / 'other.yaml'} not found", "problem")
        (conf / "other.yaml").write_text(FLAVOR_ALONE)
        await one.until_filters("Flavor")


async def test_a_directory_that_is_gone_for_a_while_changes_nothing(tmp_path: Path, conf: Path) -> None:
    async with watched(SchedulerFiles(str(conf))) as one:
        conf.rename(tmp_path / "away")
        await one.until(lambda: one.reloading.problem == f"{conf / 'conf.yaml'} not found", "problem")
        (tmp_path / "away" / POLICY).write_text(FLAVOR_ALONE)
        (tmp_path / "away").rename(conf)
        await one.until_filters("Flavor")


async def test_what_cannot_be_read_is_tried_again_although_nothing_changed(
    conf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with watched(SchedulerFiles(str(conf))) as one:
        with monkeypatch.context() as patched:
            patched.setattr(Path, "read_text", refuse)
            (conf / POLICY).write_text(FLAVOR_ALONE)
            await one.until(lambda: "too many open files" in one.reloading.problem, "problem")
        await one.until_filters("Flavor")


def refuse(path: Path, encoding: str) -> str:
    raise OSError(24, "Too many open files")


async def test_files_that_never_rest_are_read_nevertheless(conf: Path) -> None:
    async with watched(SchedulerFiles(str(conf))) as one:
        (conf / POLICY).write_text(FLAVOR_ALONE)
        moments = iter(range(1, 10**6))

        def restless() -> bool:
            moment = next(moments)
            os.utime(conf / "conf.yaml", (moment, moment))
            return one.reloading.current.policy.filters == ("Flavor",)

        await one.until(restless, "new policy")


async def test_who_asks_need_not_wait(conf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reloading, "EVERY", 3600.0)
    async with watched(SchedulerFiles("", str(conf / POLICY))) as one:
        (conf / POLICY).write_text(FLAVOR_ALONE)
        one.reloading.reload()
        await one.until_filters("Flavor")


async def test_another_server_counts_after_a_restart_and_that_is_said(conf: Path) -> None:
    async with watched(SchedulerFiles(str(conf))) as one:
        settings = (conf / "conf.yaml").read_text()
        replaced(conf / "conf.yaml", settings.replace('master: ""', "master: 127.0.0.1:8080"))
        await one.until(lambda: one.told, "word")
    assert "a changed kubeconfig or master takes effect after a restart" in one.log.getvalue()


async def test_who_is_started_beside_wrong_files_goes_on_with_those_that_were_good_last(
    tmp_path: Path, conf: Path
) -> None:
    kept = FileCopy(str(tmp_path / "kept.json"))
    async with watched(SchedulerFiles(str(conf)), kept) as one:
        replaced(conf / POLICY, FLAVOR_ALONE)
        await one.until_filters("Flavor")
        await one.until(lambda: FLAVOR_ALONE in Path(kept.path).read_text().replace("\\n", "\n"), "copy")
        assert orjson.loads(one.reloading.lease_annotation())["sites"] == 3
    replaced(conf / POLICY, "predicates: [{name: Luck}]")
    for name in ("site_infos.json", "site_resources.json"):
        (conf / name).unlink()
    async with watched(SchedulerFiles(str(conf)), kept) as one:
        assert one.reloading.current.policy.filters == ("Flavor",)
        said = orjson.loads(one.reloading.lease_annotation())
        assert "Luck" in said["problem"] and said["sites"] == 3
        assert said["options"] == ["--conf", str(conf)] and said["when"] <= said["since"]
        assert len(one.reloading.notes()) == 1
        replaced(conf / POLICY, FLAVOR_ALONE)
        await one.until(lambda: not one.reloading.problem, "end of it")
        assert "problem" not in orjson.loads(one.reloading.lease_annotation())
    assert one.log.getvalue().count("the files are invalid; the last valid configuration stays") == 1


async def test_files_are_wrong_since_they_were_written_and_not_since_somebody_was_started(
    tmp_path: Path, conf: Path
) -> None:
    kept, files = FileCopy(str(tmp_path / "kept.json")), SchedulerFiles(str(conf))
    for file in conf.iterdir():
        os.utime(file, times=(0, 0))
    files.read()
    kept.keep(files, NOON)
    (conf / POLICY).write_text("predicates: [{name: Luck}]")
    later = NOON + timedelta(minutes=30)
    os.utime(conf / POLICY, times=(later.timestamp(), later.timestamp()))
    async with watched(SchedulerFiles(str(conf)), kept) as one:
        said = orjson.loads(one.reloading.lease_annotation())
    assert (said["when"], said["since"]) == ("2024-05-01T12:00:00Z", "2024-05-01T12:30:00Z")


async def test_files_that_did_not_change_are_not_kept_again(tmp_path: Path, conf: Path) -> None:
    kept, files = FileCopy(str(tmp_path / "kept.json")), SchedulerFiles(str(conf))
    files.read()
    kept.keep(files, NOON)
    before = written(Path(kept.path))
    async with watched(SchedulerFiles(str(conf)), kept) as one:
        os.utime(conf / POLICY)
        await one.until(lambda: "reloaded the files" in one.log.getvalue(), "look")
        replaced(conf / POLICY, "")
        await one.until(lambda: one.reloading.problem, "problem")
    assert written(Path(kept.path)) == before


def written(path: Path) -> tuple[int, int, bytes]:
    """What differs if the file was written again, in place or by another one that took its place."""
    return path.stat().st_ino, path.stat().st_mtime_ns, path.read_bytes()


@pytest.mark.parametrize("copy", [None, "", "[]", '{"when": "2024-05-01T12:00:00Z", "texts": {"/other": ""}}'])
def test_without_a_copy_of_the_same_files_wrong_ones_are_an_error(tmp_path: Path, conf: Path, copy: str | None) -> None:
    kept = FileCopy(str(tmp_path / "kept.json"))
    if copy is not None:
        Path(kept.path).write_text(copy)
    (conf / POLICY).write_text("predicates: [{name: Luck}]")
    with pytest.raises(SchedulerFilesError, match="Luck"):
        kept.read(SchedulerFiles(str(conf)), NOON)


async def test_a_copy_that_cannot_be_written_is_reported_and_delays_no_other(tmp_path: Path, conf: Path) -> None:
    async with watched(SchedulerFiles(str(conf)), FileCopy(str(tmp_path / "nowhere" / "kept.json"))) as one:
        replaced(conf / POLICY, FLAVOR_ALONE)
        await one.until_filters("Flavor")
    assert "cannot store a copy of the files" in one.log.getvalue()


async def test_a_path_that_is_no_text_is_read_and_told_of_although_it_cannot_be_kept(
    tmp_path: Path, conf: Path
) -> None:
    odd = conf.rename(tmp_path / os.fsdecode(b"\xff"))
    async with watched(SchedulerFiles(str(odd)), FileCopy(str(tmp_path / "copy"))) as one:
        await one.until(lambda: "cannot store a copy of the files" in one.log.getvalue(), "error")
        replaced(odd / POLICY, "")
        await one.until(lambda: one.reloading.problem, "problem")
        told = orjson.loads(one.reloading.lease_annotation())
        assert told["options"] == ["--conf", f"{tmp_path}/\\udcff"]
        assert told["problem"] == f"{tmp_path}/\\udcff/{POLICY}: neither predicates nor priorities"


async def test_without_files_there_is_nothing_to_look_at() -> None:
    one = Watched(SchedulerFiles(), NO_COPY)
    assert one.reloading.lease_annotation() == ""
    await one.reloading.run()
    assert "successful 1" not in one.figures()
