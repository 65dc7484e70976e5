"""Names that are hashes: kcp's own examples, and what holds for all of them."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.hub.tenancy import hashes


def test_a_home_is_named_after_its_user() -> None:
    assert hashes.home_cluster_name("kcp-admin") == "kvdk2spgmbix"


def test_a_shard_has_a_short_hash() -> None:
    assert hashes.shard_hash("root") == "1pfxsevk"


@pytest.mark.parametrize(
    ("export", "name"),
    [("tenancy.kcp.io", "tenancy.kcp.io-aeivn"), ("workload.kcp.io", "workload.kcp.io-ciwtk")],
)
def test_a_default_binding_is_named_after_its_export_and_cluster(export: str, name: str) -> None:
    assert hashes.default_binding_name("kvdk2spgmbix", "root", export) == name


def test_a_binding_is_labelled_with_its_export() -> None:
    assert hashes.export_label("root", "workload.kcp.io") == "dVu53medKhDTkZGOwOJZA2llRa3TUeGHwzWm9"


def test_the_key_of_a_sync_target_has_letters_and_digits() -> None:
    assert re.fullmatch("[0-9a-zA-Z]{30,38}", hashes.sync_target_key("root", "st1"))


@given(st.binary(min_size=32, max_size=32))
def test_a_new_cluster_name_is_a_segment_of_a_path(chance: bytes) -> None:
    assert re.fullmatch("[0-9a-z]{16}", hashes.cluster_name(chance))


@given(st.binary(max_size=28))
def test_base_36_is_what_python_reads_back(data: bytes) -> None:
    assert int(hashes.base36(data), 36) == int.from_bytes(data, "big")


@given(st.binary(max_size=28))
def test_base_62_keeps_the_number(data: bytes) -> None:
    number = 0
    for digit in hashes.base62(data):
        number = number * 62 + hashes.DIGITS.index(digit)
    assert number == int.from_bytes(data, "big")
