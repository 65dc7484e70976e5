"""JSON with line breaks and indentation, for people who read answers as they are."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import orjson

from farflung.http.messages import ComputedPiece, Holder, Piece, Pieces, Request, Response, StreamedBody
from farflung.hub.request import media_types
from farflung.hub.request.target import parse_query

#: Prefixes of User-Agent headers, as in Kubernetes.
PEOPLE: Final = ("curl", "Wget", "Mozilla/5.0")
TRUE: Final = frozenset({"1", "t", "T", "true", "TRUE", "True"})
AT_ONCE: Final = 512 * 1024  #: bytes of a body that is indented at once; a larger one while its client reads it
PART: Final = 8 * 1024  #: bytes of a larger one that are indented at once
#: A string, a sign, a number or word, or the quotation mark of a string that goes on in the next piece.
TOKENS: Final = re.compile(rb'\s*("[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\],:]|[^\s"{}\[\],:]+|")', re.DOTALL)
#: The content of a string, up to its end.
CONTENT: Final = re.compile(rb'[^"\\]*(?:\\.[^"\\]*)*', re.DOTALL)
QUOTE: Final = b'"'
SIGNS: Final = frozenset(b"{}[],:")
OPENING: Final = (b"{", b"[")
CLOSING: Final = (b"}", b"]")


def is_for_people(request: Request) -> bool:
    if "pretty" in request.query and (wanted := parse_query(request.query).get("pretty")):
        return wanted in TRUE
    return request.headers.get("user-agent", "").startswith(PEOPLE)


def indented(response: Response) -> Response:
    """The response with its JSON indented; another response as it is."""
    if response.content_type != media_types.JSON or not response.body:
        return response
    body = response.body
    if isinstance(body, StreamedBody):
        return replace(response, body=StreamedBody(_indented_pieces(body.pieces)))
    if len(body) > AT_ONCE:
        return replace(response, body=StreamedBody(_indented_pieces(lambda holder: iter((body,)))))
    return replace(response, body=orjson.dumps(orjson.loads(body), option=orjson.OPT_INDENT_2))


def _parts(piece: Piece) -> Iterator[bytes]:
    return (bytes(piece[start : start + PART]) for start in range(0, len(piece), PART))


async def computed(piece: ComputedPiece, indentation: Indentation) -> bytes:
    written = []
    for part in _parts(await piece):
        written.append(indentation.add(part))
        await asyncio.sleep(0)
    return b"".join(written)


def _indented_pieces(original: Pieces) -> Pieces:
    def pieces(holder: Holder) -> Iterator[Piece | ComputedPiece]:
        indentation = Indentation()
        for piece in original(holder):
            if isinstance(piece, asyncio.Future):
                yield asyncio.ensure_future(computed(piece, indentation))
            else:
                yield from map(indentation.add, _parts(piece))
        yield indentation.end()

    return pieces


class Indentation:
    """Indents a document that arrives in pieces."""

    def __init__(self) -> None:
        self._rest = b""  #: the start of a number, of a word or of an escaped character
        self._in_string = False
        self._depth = 0
        self._opened = False  #: the last token opened an object or a list

    def add(self, piece: bytes) -> bytes:
        data = self._rest + piece
        written: list[bytes] = []
        position = 0
        while position < len(data):
            if self._in_string:
                content = CONTENT.match(data, position)
                assert content is not None
                end = content.end()
                written.append(data[position:end])
                position = end
                if not data.startswith(QUOTE, position):
                    break
                written.append(QUOTE)
                position += 1
                self._in_string = False
            token = TOKENS.match(data, position)
            if token is None:
                break
            text = token[1]
            is_word = text[0] not in SIGNS and not text.startswith(QUOTE)
            if is_word and token.end() == len(data):
                break
            position = token.end()
            self._write(text, written)
            self._in_string = text == QUOTE
        self._rest = data[position:]
        return b"".join(written)

    def end(self) -> bytes:
        written: list[bytes] = []
        if self._rest.strip():
            self._write(self._rest.strip(), written)
        return b"".join(written)

    def _write(self, token: bytes, written: list[bytes]) -> None:
        was_opened, self._opened = self._opened, token in OPENING
        if token in CLOSING:
            self._depth -= 1
            if not was_opened:
                written.append(self._line())
        elif was_opened:
            written.append(self._line())
        written.append(token)
        if token == b":":
            written.append(b" ")
        elif token == b",":
            written.append(self._line())
        self._depth += self._opened

    def _line(self) -> bytes:
        return b"\n" + b"  " * self._depth
