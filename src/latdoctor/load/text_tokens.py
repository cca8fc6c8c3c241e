"""The tokens of a text, as the reference server's model reads them, and the checksum of a history of tokens.

Here because both sides need them: the server computes with them, a client checks with them what its answer came from.
"""

from __future__ import annotations

import re
import sys
import zlib
from array import array
from collections.abc import Sequence
from hashlib import blake2b

VOCABULARY = 8192  # of the model
RESERVED = 4  # padding, separator, unknown, mask
_PIECE = 16  # a longer word is read in pieces of so many characters
_WORDS = re.compile(r"\w+|[^\w\s]")
_TYPE = "H"  # unsigned, 16 bits: enough for the vocabulary
TOKEN_BYTES = 2
_CHECKSUM_BYTES = 8


def text_tokens(text: str) -> list[int]:
    """Ids of the words and signs of `text`, long words in pieces: the same text gives the same ids everywhere.

    A hash stands in for a trained vocabulary (the hashing trick, Weinberger et al., ICML 2009).
    """
    words = _WORDS.findall(text.lower())
    pieces = (word[start : start + _PIECE] for word in words for start in range(0, len(word), _PIECE))
    return [RESERVED + zlib.crc32(piece.encode("utf-8", "replace")) % (VOCABULARY - RESERVED) for piece in pieces]


def packed_tokens(tokens: Sequence[int]) -> bytes:
    """Token ids as unsigned integers of 16 bits, little-endian."""
    values = array(_TYPE, tokens)
    if sys.byteorder == "big":
        values.byteswap()
    return values.tobytes()


def unpacked_tokens(data: bytes) -> tuple[int, ...]:
    """The token ids of `packed_tokens`; raises ValueError for half a token."""
    values = array(_TYPE)
    values.frombytes(data)
    if sys.byteorder == "big":
        values.byteswap()
    return tuple(values)


def state_checksum(tokens: Sequence[int]) -> str:
    """Of the tokens of history that an answer was computed with: a client computes it from its own texts."""
    return blake2b(packed_tokens(tokens), digest_size=_CHECKSUM_BYTES).hexdigest()
