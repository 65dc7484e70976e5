"""Log files and their size limit."""

from datetime import UTC, datetime
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from farflung.edge.runtimes.log_files import MAX_PART, LogWriter, rotated


def now() -> datetime:
    return datetime(2026, 11, 16, 6, 30, tzinfo=UTC)


def texts(log: bytes) -> dict[str, bytes]:
    """The output by stream, with a newline at the end."""
    found: dict[str, bytes] = {}
    for line in log.removesuffix(b"\n").split(b"\n") if log else []:
        _, stream, tag, text = line.split(b" ", 3)
        found[stream.decode()] = found.get(stream.decode(), b"") + text + (b"\n" if tag == b"F" else b"")
    return found


CHUNKS = st.lists(st.tuples(st.sampled_from(["stdout", "stderr"]), st.binary(min_size=1, max_size=30)), max_size=20)


@given(CHUNKS)
def test_the_output_can_be_restored_from_the_log(tmp_path_factory, chunks) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path_factory.mktemp("logs") / "0.log"
    writer = LogWriter(path, now)
    expected: dict[str, bytes] = {}
    for stream, data in chunks:
        writer.feed(stream, data)
        expected[stream] = expected.get(stream, b"") + data
    writer.close()
    written = texts(path.read_bytes()) if path.exists() else {}
    assert written == {stream: text if text.endswith(b"\n") else text + b"\n" for stream, text in expected.items()}


def test_a_long_line_is_written_in_parts(tmp_path: Path) -> None:
    writer = LogWriter(tmp_path / "0.log", now)
    writer.feed("stdout", b"a" * (2 * MAX_PART + 1))
    writer.feed("stdout", b"b\n" + b"c" * MAX_PART + b"\n")
    writer.close()
    lines = (tmp_path / "0.log").read_bytes().splitlines()
    assert [line.split(b" ")[2] for line in lines] == [b"P", b"P", b"F", b"F"]
    assert lines[2].endswith(b" F ab")


def test_a_log_has_a_bound_and_loses_its_oldest_part(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    writer = LogWriter(path, now, limit=2000)
    for number in range(1000):
        writer.feed("stdout", b"%d\n" % number)
    writer.close()
    sizes = path.stat().st_size, rotated(path).stat().st_size
    assert sum(sizes) <= 2000
    lines = rotated(path).read_text().splitlines() + path.read_text().splitlines()
    numbers = [int(line.split()[-1]) for line in lines]
    assert numbers == list(range(numbers[0], 1000))


def test_a_log_that_cannot_be_written_ends_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    writer = LogWriter(tmp_path / "file" / "0.log", now)
    writer.feed("stdout", b"lost\n")
    writer.close()


def test_a_full_disk_does_not_stop_a_container(tmp_path: Path) -> None:
    (tmp_path / "0.log").symlink_to("/dev/full")
    writer = LogWriter(tmp_path / "0.log", now, limit=200)
    for _ in range(10):
        writer.feed("stdout", b"lost at first\n")
    writer.close()
    assert (tmp_path / "0.log").read_text().endswith(" stdout F lost at first\n"), "it goes on where there is room"
