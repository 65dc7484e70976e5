from contextlib import closing
from pathlib import Path

import apsw

from farflung.store.sqlite.store import SqliteStore


async def test_a_copy_that_lost_its_write_ahead_log_mode_gets_it_back(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "one.sqlite")
    await store.put("/core/configmaps/root/a/b", b"1", expect=0)
    await store.close()
    with closing(apsw.Connection(str(tmp_path / "one.sqlite"))) as connection:
        connection.execute("vacuum into ?", [str(tmp_path / "copy.sqlite")])
    copy = await SqliteStore.open(tmp_path / "copy.sqlite")
    await copy.put("/core/configmaps/root/a/c", b"2", expect=0)
    with closing(apsw.Connection(str(tmp_path / "copy.sqlite"))) as connection:
        assert connection.pragma("journal_mode") == "wal"
    await copy.close()
