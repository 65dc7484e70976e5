"""Pools of addresses and node ports."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.apis.core.services import Allocations, NotAvailable
from farflung.hub.admission.service_pools import ServicePools


def test_a_small_network_runs_out_and_recovers() -> None:
    pools = ServicePools("10.0.0.0/29")
    taken = [pools.take_address("") for _ in range(5)]
    assert taken == [f"10.0.0.{number}" for number in range(2, 7)], "the first is the server's own"
    with pytest.raises(NotAvailable, match="range is full"):
        pools.take_address("")
    pools.release_address("10.0.0.3")
    assert pools.take_address("") == "10.0.0.3"


def test_a_freed_address_rests_while_others_are_free() -> None:
    pools = ServicePools("10.0.0.0/29")
    first = pools.take_address("")
    pools.release_address(first)
    assert pools.take_address("") != first


@pytest.mark.parametrize("wanted", ["1.2.3.4", "10.0.0.0", "10.0.0.7", "::1", "nonsense"])
def test_addresses_outside_are_refused(wanted: str) -> None:
    with pytest.raises(NotAvailable, match="the provided network does not match the current range"):
        ServicePools("10.0.0.0/29").take_address(wanted)


def test_what_is_held_is_taken() -> None:
    pools = ServicePools("10.0.0.0/29", range(30000, 30002))
    pools.hold(Allocations(["10.0.0.1"], [30000]))
    assert (pools.take_address(""), pools.take_port(0)) == ("10.0.0.2", 30001)
    with pytest.raises(NotAvailable, match="provided IP is already allocated"):
        pools.take_address("10.0.0.1")
    with pytest.raises(NotAvailable, match="provided port is already allocated"):
        pools.take_port(30000)
    with pytest.raises(NotAvailable, match="The range of valid ports is 30000-30001"):
        pools.take_port(80)
    with pytest.raises(NotAvailable, match="range is full"):
        pools.take_port(0)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5)), max_size=40))
def test_no_port_is_ever_held_twice(steps: list[tuple[bool, int]]) -> None:
    pools, held = ServicePools(ports=range(30000, 30006)), set[int]()
    for takes, number in steps:
        if takes:
            try:
                taken = pools.take_port(0)
            except NotAvailable:
                assert len(held) == 6
                continue
            assert taken not in held
            held.add(taken)
        else:
            pools.release_port(30000 + number)
            held.discard(30000 + number)
