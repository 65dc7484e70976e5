from __future__ import annotations

from uuid import RFC_4122, UUID

from farflung.lib.ids import UIDS_AT_ONCE, Uids


def test_uids_are_random_uuids_and_never_repeat() -> None:
    draw = Uids()
    drawn = [draw() for _ in range(3 * UIDS_AT_ONCE)]
    assert len(set(drawn)) == len(drawn)
    for text in drawn:
        uid = UUID(text)
        assert (str(uid), uid.version, uid.variant) == (text, 4, RFC_4122)
