"""Which tokens our keys have signed: those, and no others."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from farflung.hub.auth.signing_keys import LARGEST, PrivateKey, SigningKeys, ensure_keys, parse_keys
from farflung.store.base import Unusable

CLAIMS = b'{"iss":"me","sub":"you"}'
KEYS = SigningKeys.new()
TOKEN = KEYS.sign(CLAIMS)


def pem(key: PrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def public_pem(key: PrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def encoded(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def header_of(token: str) -> dict[str, str]:
    return dict(jwt.get_unverified_header(token))


def forged(header: object, key: object = None) -> str:
    return f"{encoded(header)}.{encoded({'iss': 'me'})}.{'' if key is None else 'AAAA'}"


def payload(keys: SigningKeys, token: str) -> bytes | None:
    found = keys.verify(token)
    return None if found is None else found.payload


@pytest.fixture(scope="module")
def rsa_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, 2048)


@pytest.mark.parametrize("curve", [ec.SECP256R1(), ec.SECP384R1(), ec.SECP521R1()], ids=lambda curve: curve.name)
def test_what_a_key_signs_it_recognizes(curve: ec.EllipticCurve) -> None:
    keys = SigningKeys(ec.generate_private_key(curve))
    assert payload(keys, keys.sign(CLAIMS)) == CLAIMS


def test_an_rsa_key_signs_as_well(rsa_key: rsa.RSAPrivateKey) -> None:
    keys = SigningKeys(rsa_key)
    token = keys.sign(CLAIMS)
    assert header_of(token)["alg"] == "RS256"
    assert payload(keys, token) == CLAIMS


def test_others_can_verify_a_token_with_the_published_keys(rsa_key: rsa.RSAPrivateKey) -> None:
    keys = SigningKeys(rsa_key, [ec.generate_private_key(ec.SECP256R1()).public_key()])
    described = keys.described()
    assert [(key["alg"], key["use"]) for key in described["keys"]] == [("RS256", "sig"), ("ES256", "sig")]
    assert not any("d" in key for key in described["keys"]), "only what is public is published"
    published = jwt.PyJWKSet.from_dict(described)
    token = keys.sign(CLAIMS)
    key = published[header_of(token)["kid"]]
    assert jwt.decode(token, key, algorithms=["RS256"], options={"verify_exp": False}) == json.loads(CLAIMS)


def test_a_new_key_takes_over_while_tokens_of_the_old_one_stay_good() -> None:
    old, new = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP384R1())
    before, during, after = SigningKeys(old), SigningKeys(new, [old.public_key()]), SigningKeys(new)
    token = before.sign(CLAIMS)
    assert payload(during, token) == CLAIMS
    assert after.verify(token) is None
    assert before.verify(during.sign(CLAIMS)) is None


def test_the_key_says_which_algorithm_a_token_has(rsa_key: rsa.RSAPrivateKey) -> None:
    kid = header_of(TOKEN)["kid"]
    published = public_pem(rsa_key)
    for algorithm in ("none", "HS256", "ES384", "RS256", "es256", ""):
        assert KEYS.verify(forged({"alg": algorithm, "kid": kid})) is None
        assert KEYS.verify(forged({"alg": algorithm, "kid": kid}, "signature")) is None
    keys = SigningKeys(rsa_key)
    kid = header_of(keys.sign(CLAIMS))["kid"]
    head = f"{encoded({'alg': 'HS256', 'kid': kid})}.{encoded({'iss': 'me'})}"
    algorithm = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256)
    signature = base64.urlsafe_b64encode(algorithm.sign(head.encode(), published)).rstrip(b"=").decode()
    assert keys.verify(f"{head}.{signature}") is None, "what everybody knows is no secret to sign with"


def test_another_key_with_the_same_id_is_another_key() -> None:
    stranger = ec.generate_private_key(ec.SECP256R1())
    token = jwt.PyJWS().encode(CLAIMS, stranger, "ES256", {"kid": header_of(TOKEN)["kid"]})
    assert KEYS.verify(token) is None


def test_a_token_that_names_no_key_or_demands_something_is_none_of_ours() -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    keys = SigningKeys(key)
    kid = header_of(keys.sign(CLAIMS))["kid"]
    for header in (
        {"kid": "x"},
        {"kid": None},
        {},
        {"kid": kid, "crit": ["exp"], "exp": 1},
        {"kid": kid, "x5u": "y" * 600},
    ):
        sent = jwt.PyJWS().encode(CLAIMS, key, "ES256", {name: value for name, value in header.items() if value})
        assert keys.verify(sent) is None


def test_a_header_that_is_deep_or_long_is_not_even_read() -> None:
    for header in ("[" * 300, '{"a":' * 90, "{" + '"a":1,' * 10_000, '{"alg":1,"kid":2}', "null", '"x"'):
        part = base64.urlsafe_b64encode(header.encode()).rstrip(b"=").decode()
        assert KEYS.verify(f"{part}.{TOKEN.split('.')[1]}.{TOKEN.split('.')[2]}") is None


def test_a_token_is_taken_in_one_spelling_and_up_to_a_size() -> None:
    head, claims, signature = TOKEN.split(".")
    for spelling in (
        f" {TOKEN}",
        f"{TOKEN} ",
        f"{TOKEN}=",
        f"{TOKEN}==",
        f"{head}.{claims}.{signature}\n",
        f"{TOKEN}.",
    ):
        assert KEYS.verify(spelling) is None
    assert KEYS.verify(f"{head}.{claims}.{signature[:40]}!{signature[40:]}") is None
    last = signature[-1]
    for other in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_":
        assert (KEYS.verify(TOKEN[:-1] + other) is not None) == (other == last)
    large = KEYS.sign(b'{"x":"%s"}' % (b"x" * LARGEST))
    assert KEYS.verify(large) is None


@settings(max_examples=examples(300))
@given(st.text(max_size=60) | st.from_regex(r"[\w-]{0,30}\.[\w-]{0,30}\.[\w-]{0,30}", fullmatch=True))
def test_arbitrary_bytes_are_no_token(text: str) -> None:
    assert KEYS.verify(text) is None


# --- the file -------------------------------------------------------------------------------------


def test_a_key_is_made_once_readable_by_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "key"
    token = ensure_keys(path).sign(CLAIMS)
    assert path.stat().st_mode & 0o777 == 0o600
    assert payload(ensure_keys(path), token) == CLAIMS


def test_a_file_may_have_keys_of_before_private_or_public(rsa_key: rsa.RSAPrivateKey) -> None:
    first, second = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    keys = SigningKeys.of(
        parse_keys(b"the new one\n" + pem(first) + b"\nthe old ones\n" + pem(second) + public_pem(rsa_key))
    )
    assert [key["alg"] for key in keys.described()["keys"]] == ["ES256", "ES256", "RS256"]
    for key in (first, second, rsa_key):
        assert payload(keys, SigningKeys(key).sign(CLAIMS)) == CLAIMS
    assert payload(SigningKeys(first), keys.sign(CLAIMS)) == CLAIMS


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"nothing",
        public_pem(ec.generate_private_key(ec.SECP256R1())),
        b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
        ed25519.Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        pem(rsa.generate_private_key(65537, 1024)),
        pem(ec.generate_private_key(ec.SECP256K1())),
    ],
    ids=["empty", "no key", "public only", "damaged", "of another kind", "too small", "of another curve"],
)
def test_a_file_that_is_of_no_use_is_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "key"
    path.write_bytes(content)
    with pytest.raises(Unusable, match="is damaged"):
        ensure_keys(path)
    assert path.read_bytes() == content
