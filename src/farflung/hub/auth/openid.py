"""The documents with which others can verify tokens of ServiceAccounts by themselves."""

from __future__ import annotations

import orjson

from farflung.http.messages import Request, Response
from farflung.hub.auth.claims import ISSUER
from farflung.hub.auth.signing_keys import SigningKeys

KEYS = "/openid/v1/jwks"
CACHED = (("Cache-Control", "public, max-age=3600"),)


def answer(request: Request, path: str, keys: SigningKeys) -> Response | None:
    """None if there is no such document."""
    match path.removesuffix("/"):
        case "/.well-known/openid-configuration":
            host = request.headers.get("host", "localhost")
            document = {
                "issuer": ISSUER,
                "jwks_uri": f"https://{host}{KEYS}",
                "response_types_supported": ["id_token"],
                "subject_types_supported": ["public"],
                "id_token_signing_alg_values_supported": keys.algorithms,
            }
            return Response(200, orjson.dumps(document), "application/json", CACHED)
        case "/openid/v1/jwks":
            return Response(200, orjson.dumps(keys.described()), "application/jwk-set+json", CACHED)
    return None
