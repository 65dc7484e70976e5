"""Whose turn it is to serve a mailbox, by what is said there and one's own clock."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hostile import ANYTHING
from hypothesis import given
from hypothesis import strategies as st

from farflung.apis.edge.names import SERVED_BY
from farflung.syncer.lease import HolderRecord, LeaseTracker, holder_record

PATIENCE = 60
BEAT = 20
NOBODY = HolderRecord("", "", "")


def beat(number: int, uid: str = "theirs", chosen: str = "") -> HolderRecord:
    return HolderRecord(uid, str(number), chosen)


def test_a_mailbox_without_another_syncer_is_ours() -> None:
    turn = LeaseTracker(PATIENCE)
    assert turn.check(NOBODY, {"ours"}, 0)
    assert turn.check(beat(1, "ours"), {"ours"}, 0)
    assert turn.check(beat(1, "replaced"), {"ours", "replaced"}, 0)
    assert turn.holder == ""


def test_another_syncer_holds_the_mailbox_until_it_was_silent_long_enough() -> None:
    turn = LeaseTracker(PATIENCE)
    for now in (1000, 1030, 1059):
        assert not turn.check(beat(1), {"ours"}, now)
    assert (turn.holder, turn.silence(1059)) == ("theirs", 59)
    for now in (1060, 1090, 1119):
        assert not turn.check(beat(2), {"ours"}, now)
    assert turn.check(beat(2), {"ours"}, 1120)
    assert turn.holder == ""


def test_time_without_connection_is_no_silence() -> None:
    turn = LeaseTracker(PATIENCE)
    assert not turn.check(beat(1), {"ours"}, 0)
    assert not turn.check(beat(1), {"ours"}, 500)
    assert not turn.check(beat(1), {"ours"}, 530)
    turn.forget_silence()
    assert not turn.check(beat(1), {"ours"}, 559)
    assert not turn.check(beat(1), {"ours"}, 589)
    assert turn.check(beat(1), {"ours"}, 619)


def test_a_syncer_that_an_operator_chose_does_not_wait() -> None:
    turn = LeaseTracker(PATIENCE)
    assert not turn.check(beat(1, chosen="third"), {"ours"}, 0)
    assert turn.check(beat(2, chosen="ours"), {"ours"}, 1)


def test_who_does_not_know_its_own_cluster_yet_waits_for_everybody() -> None:
    assert not LeaseTracker(PATIENCE).check(beat(1), set(), 0)
    assert LeaseTracker(PATIENCE).check(NOBODY, set(), 0)


@given(ANYTHING, ANYTHING, ANYTHING)
def test_any_syncer_config_is_read_for_its_holder(metadata: Any, status: Any, edge: Any) -> None:
    for config in (
        {"metadata": metadata, "status": status},
        {"metadata": {"annotations": metadata}, "status": {"edge": edge, "lastSyncerHeartbeatTime": status}},
        {"metadata": {"annotations": {SERVED_BY: metadata}}, "status": {"edge": {"uid": edge}}},
    ):
        LeaseTracker(PATIENCE).check(holder_record(config), {"ours"}, 0)


# --- histories ------------------------------------------------------------------------------------


@dataclass
class Mailbox:
    said: HolderRecord = NOBODY
    away: int = 0  #: until when the hub is
    takeovers: list[str] = field(default_factory=list)  #: of a mailbox whose syncer was alive and was not told to go


@dataclass
class Model:
    """A syncer as far as turns go: what it reports is in the place of what it reported before, or of what it saw."""

    uid: str
    turn: LeaseTracker = field(default_factory=lambda: LeaseTracker(PATIENCE))
    serves: bool = False
    online: bool = True
    gone: float = float("-inf")  #: when it was last cut off
    slow: int = 0  #: seconds until it reports again after the hub was away
    beaten: float = float("-inf")

    def look(self, box: Mailbox, now: int, alive: set[str]) -> None:
        if not self.online:
            self.gone = now
            return
        if now < box.away:
            self.turn.forget_silence()
            return
        found = box.said
        if found.uid == self.uid and now < box.away + self.slow:
            return
        if not self.turn.check(found, {self.uid}, now):
            self.serves = False
        elif found.uid != self.uid or now - self.beaten >= BEAT:
            if found.uid in alive - {self.uid} and found.chosen != self.uid:
                box.takeovers.append(self.uid)
            box.said = HolderRecord(self.uid, f"{self.uid}{now}", found.chosen)
            self.serves, self.beaten = True, now
        else:
            self.serves = True


STEPS = st.one_of(
    st.tuples(st.just("pass"), st.integers(1, 100)),
    st.tuples(st.just("cut"), st.sampled_from("abc")),
    st.tuples(st.just("back"), st.sampled_from("abc")),
    st.tuples(st.just("restart"), st.sampled_from("abc")),
    st.tuples(st.just("outage"), st.integers(1, 300)),
    st.tuples(st.just("slow"), st.integers(0, 30)),
    st.tuples(st.just("choose"), st.sampled_from(["a", "b", "c", "nobody", ""])),
)


@given(st.lists(STEPS, max_size=30))
def test_after_any_history_one_syncer_serves_and_none_replaced_a_running_one(steps: list[tuple[str, Any]]) -> None:
    """Each looks once a second, as a watch would let it."""
    box, now = Mailbox(), 0
    syncers = {uid: Model(uid) for uid in "abc"}

    def passes(seconds: int) -> None:
        nonlocal now
        for _ in range(seconds):
            now += 1
            for one in syncers.values():
                alive = {uid for uid, other in syncers.items() if other.serves and now - other.gone > PATIENCE}
                one.look(box, now, alive)
            for one in syncers.values():
                one.look(box, now, set())
            assert now < box.away or sum(one.serves for one in syncers.values() if one.online) <= 1

    for what, how in steps:
        match what:
            case "pass":
                passes(how)
            case "cut" | "back":
                syncers[how].online = what == "back"
            case "restart":
                syncers[how] = Model(how, online=syncers[how].online)
            case "outage":
                box.away = now + how
                passes(how)
            case "slow":
                for one in syncers.values():
                    one.slow = how
            case "choose":
                box.said = box.said._replace(chosen=how)
    for one in syncers.values():
        one.online = True
    passes(3 * PATIENCE)
    serving = [uid for uid, one in syncers.items() if one.serves]
    assert serving == [box.said.uid]
    assert box.said.chosen not in syncers or serving == [box.said.chosen]
    passes(PATIENCE)
    assert serving == [uid for uid, one in syncers.items() if one.serves]
    assert box.takeovers == []
