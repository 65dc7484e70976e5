from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from farflung.runtime.cache import Cache, CacheChange, CachedObject, Key


def key(name: str) -> Key:
    return Key("c", "", name)


def known(name: str, version: int, value: str = "") -> CachedObject[str]:
    return CachedObject(key(name), version, value or f"{name}{version}")


def test_a_key_reads_as_the_clients_of_kcp_write_it() -> None:
    assert str(Key("2rp1", "", "location-g")) == "2rp1|location-g"
    assert str(Key("2rp1", "ns", "a")) == "2rp1|ns/a"
    assert str(Key("", "ns", "a")) == "ns/a"


def test_what_is_older_than_what_is_known_is_no_news() -> None:
    cache: Cache[str] = Cache()
    assert cache.apply(known("a", 5)) == CacheChange(key("a"), None, "a5")
    assert cache.apply(known("a", 5)) is None
    assert cache.apply(known("a", 4)) is None
    assert cache.apply(known("a", 6)) == CacheChange(key("a"), "a5", "a6")


def test_an_own_write_is_cached_at_once_and_its_event_is_no_change() -> None:
    cache: Cache[str] = Cache()
    cache.replace([known("a", 5)], 5)
    assert cache.assume(known("a", 9)) == CacheChange(key("a"), "a5", "a9")
    assert cache.apply(known("a", 8)) is None
    assert cache.apply(known("a", 9)) is None


def test_an_own_write_is_not_cached_if_the_event_of_its_deletion_arrived_first() -> None:
    cache: Cache[str] = Cache()
    cache.apply(known("a", 5))
    cache.remove(known("a", 7))
    assert cache.assume(known("a", 6)) is None
    assert key("a") not in cache


def test_the_deletion_of_an_earlier_one_of_that_name_is_no_news() -> None:
    cache: Cache[str] = Cache()
    cache.assume(known("a", 9))
    assert cache.remove(known("a", 8)) is None
    assert cache[key("a")] == "a9"


def test_a_server_that_went_back_to_a_copy_may_give_a_version_to_something_else() -> None:
    cache: Cache[str] = Cache()
    cache.replace([known("a", 5, "before"), known("b", 6)], 6)
    assert cache.replace([known("a", 5, "after"), known("b", 6)], 6) == [CacheChange(key("a"), "before", "after")]


lists = st.dictionaries(st.sampled_from("abcd"), st.integers(1, 4)).map(
    lambda found: [known(name, version) for name, version in found.items()]
)


@given(lists, lists)
def test_the_changes_of_a_new_list_lead_from_what_was_known_to_what_is(
    before: list[CachedObject[str]], after: list[CachedObject[str]]
) -> None:
    cache: Cache[str] = Cache()
    cache.replace(before, 10)
    world = dict(cache)
    for change in cache.replace(after, 20):
        assert world.get(change.key) == change.old
        assert change.old != change.new
        if change.new is None:
            del world[change.key]
        else:
            world[change.key] = change.new
    assert world == dict(cache) == {one.key: one.value for one in after}
