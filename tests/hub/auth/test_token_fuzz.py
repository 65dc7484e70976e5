"""Whatever is sent as a token: 401, and nothing else."""

from __future__ import annotations

import asyncio
import base64
import json
from functools import lru_cache

from examples import examples
from hub_harness import CONFIG_MAPS, LocalHub
from hypothesis import given, settings
from hypothesis import strategies as st

from farflung.http.messages import Request, Response

REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"


@lru_cache
def prepared() -> tuple[LocalHub, str]:
    """A hub and a good token of its."""

    async def make() -> tuple[LocalHub, str]:
        hub = await LocalHub.in_memory().furnish()
        answer = await hub.post("/api/v1/namespaces/default/serviceaccounts/default/token", {"spec": {}})
        return hub, answer.json["status"]["token"]

    return asyncio.run(make())


def status_of(header: str) -> int:
    answer = prepared()[0].function(Request("GET", CONFIG_MAPS, headers={"authorization": header}))
    assert isinstance(answer, Response)
    assert (
        answer.body
        == (
            b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Unauthorized",'
            b'"reason":"Unauthorized","code":401}'
        )
        or answer.status == 403
    )
    return answer.status


def encoded(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=12,
)
HEADERS = st.fixed_dictionaries(
    {"alg": st.sampled_from(["none", "None", "HS256", "ES256", "RS256", ""]) | JSON},
    optional={"kid": JSON, "typ": JSON, "crit": JSON, "b64": JSON, "jku": st.just("https://example.com")},
)


@st.composite
def mutations(draw: st.DrawFn) -> str:
    """A good token with something done to it."""
    token = prepared()[1]
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, len(token)))
        match draw(st.sampled_from(["cut", "drop", "insert", "double", "swap", "replace"])):
            case "cut":
                token = token[:place]
            case "drop":
                token = token[:place] + token[place + draw(st.integers(1, 5)) :]
            case "insert":
                token = token[:place] + draw(st.text(min_size=1, max_size=5)) + token[place:]
            case "double":
                token = token[:place] + token
            case "swap":
                parts = token.split(".")
                token = ".".join(draw(st.permutations(parts)))
            case "replace":
                char = draw(st.sampled_from("ABCabc019-_=.+/ "))
                token = token[:place] + char + token[place + 1 :]
    return token


def test_the_token_that_is_mutated_is_good() -> None:
    assert status_of(f"Bearer {prepared()[1]}") == 403, "it is known, and has no rights"


@settings(max_examples=examples(400))
@given(mutations())
def test_a_token_that_was_changed_is_refused(token: str) -> None:
    assert status_of(f"Bearer {token}") == (403 if token.strip() == prepared()[1] else 401)


@settings(max_examples=examples(200))
@given(HEADERS, st.booleans(), JSON, st.binary(max_size=70))
def test_a_token_with_any_header_and_any_claims_is_refused(
    header: dict[str, object], known: bool, claims: object, signature: bytes
) -> None:
    _, token = prepared()
    if known:
        header["kid"] = prepared()[0].accounts.keys.described()["keys"][0]["kid"]
    said = token.split(".")[1] if claims is None else encoded(claims)
    ends = base64.urlsafe_b64encode(signature).rstrip(b"=").decode()
    assert status_of(f"Bearer {encoded(header)}.{said}.{ends}") == 401


@settings(max_examples=examples(200))
@given(st.text(max_size=200))
def test_any_header_is_refused(header: str) -> None:
    assert status_of(header) == 401


@settings(max_examples=examples(100))
@given(mutations() | st.text(min_size=1, max_size=50), st.lists(st.text(max_size=5), max_size=3))
def test_a_review_of_anything_says_that_it_is_no_token(token: str, audiences: list[str]) -> None:
    hub, good = prepared()
    review = {"spec": {"token": token.encode("utf-8", "replace").decode(), "audiences": audiences}}
    answer = asyncio.run(hub.post(REVIEWS, review))
    if answer.status == 201 and token != good:
        assert answer.json["status"]["user"] == {}
        assert answer.json["status"]["error"].startswith(("invalid bearer token", "[invalid bearer token, "))
    else:
        assert answer.status in (201, 400)


def test_enormous_headers_take_no_time() -> None:
    _, token = prepared()
    for enormous in (
        "Bearer " + "a" * 1_000_000,
        "Bearer " + "." * 1_000_000,
        "Bearer " + "a." * 500_000,
        f"Bearer {token}" + "A" * 1_000_000,
        "Bearer " + encoded([[[[]]]] * 10_000) + "." + token,
        " " * 1_000_000,
    ):
        assert status_of(enormous) == 401
