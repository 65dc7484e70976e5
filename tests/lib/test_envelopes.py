"""Values are opened by the right key in the right place, and by nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.lib import envelopes
from farflung.lib.envelopes import ForgedEnvelopeError, KeyRing, UnknownKeyError, id_of, key_id_of, new_key

KEYS = st.binary(min_size=32, max_size=32)
A, B = new_key(), new_key()


@given(KEYS, st.binary(), st.binary())
def test_a_value_is_opened_with_its_key_and_context(key: bytes, value: bytes, context: bytes) -> None:
    envelope = KeyRing([key]).seal(value, context)
    assert KeyRing([key]).open(envelope, context) == value
    assert value not in envelope or len(value) < 8
    assert key_id_of(envelope) == id_of(key)


def test_the_first_key_seals_and_all_keys_open() -> None:
    old = KeyRing([A]).seal(b"value", b"")
    both = KeyRing([B, A])
    assert both.open(old, b"") == b"value"
    assert key_id_of(both.seal(b"value", b"")) == id_of(B) == both.first_id
    assert both.ids == [id_of(B), id_of(A)]
    with pytest.raises(UnknownKeyError, match=id_of(A)):
        KeyRing([B]).open(old, b"")


def test_an_envelope_is_worth_nothing_in_another_place() -> None:
    ring = KeyRing([A])
    envelope = ring.seal(b"value", b"/core/secrets/root/default/a")
    with pytest.raises(ForgedEnvelopeError):
        ring.open(envelope, b"/core/secrets/root/default/b")


@given(st.binary(max_size=40), st.integers(0, 10_000), st.integers(0, 7))
def test_a_changed_bit_is_noticed_wherever_it_is(value: bytes, at: int, bit: int) -> None:
    sealed = bytearray(KeyRing([A]).seal(value, b"c"))
    sealed[at % len(sealed)] ^= 1 << bit
    with pytest.raises((ForgedEnvelopeError, UnknownKeyError)):
        KeyRing([A]).open(bytes(sealed), b"c")


@given(st.binary(max_size=200))
def test_garbage_is_no_envelope(garbage: bytes) -> None:
    with pytest.raises((ForgedEnvelopeError, UnknownKeyError)):
        KeyRing([A]).open(garbage, b"")
    with pytest.raises(ForgedEnvelopeError):
        KeyRing([A]).open(bytes.fromhex(id_of(A)) + garbage, b"")


def test_equal_values_have_different_envelopes() -> None:
    ring = KeyRing([A])
    assert len({ring.seal(b"value", b"") for _ in range(100)}) == 100


def test_a_data_key_is_replaced_before_its_nonces_can_repeat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(envelopes, "MAX_VALUES", 3)
    ring = KeyRing([A])
    sealed = [ring.seal(b"value", b"") for _ in range(7)]
    assert len({envelope[: envelopes.HEAD_BYTES] for envelope in sealed}) == 3
    assert [KeyRing([A]).open(envelope, b"") for envelope in sealed] == [b"value"] * 7


def test_an_id_reveals_nothing_of_its_key() -> None:
    assert len(id_of(A)) == 16
    assert id_of(A) not in A.hex()
