"""Which cluster a mailbox is, and what is remembered of that."""

from __future__ import annotations

from pathlib import Path

import pytest
from partition_end import at_rest
from partition_menu import REFS

from farflung.syncer.journal import Journal
from farflung.syncer.mailbox import MAILBOX_CLUSTER


async def test_how_far_a_mailbox_was_heard_is_forgotten_before_another_is_known_in_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with at_rest(tmp_path) as world:
        await world.link.stop()
        await world.renew_mailbox()
        set_fact, heard = Journal.set_fact, []

        def set_and_look(journal: Journal, name: str, value: str) -> None:
            if name == MAILBOX_CLUSTER and value != journal.get_fact(name):
                heard.append([one.revision for one in journal.positions().values()])
            set_fact(journal, name, value)

        monkeypatch.setattr(Journal, "set_fact", set_and_look)
        await world.link.start()
        again = world.link.syncer
        assert again is not None
        await world.link.eventually(lambda: again.summary.counts()["orphaned"] == len(REFS), "orphans")
        assert len(heard) == 1 and not any(heard[0])
