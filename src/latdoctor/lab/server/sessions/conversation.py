"""The state of a conversation: its turns, their comparison with a client's transcript, and their encoding.

The transcript that a client sends is the truth; what a store holds is a copy that may be lost, stale or of another
conversation. A digest of each turn's text shows which, and costs a hundredth of tokenising the text again.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from hashlib import blake2b

import msgspec
from msgspec import Struct

from latdoctor.decode_errors import UNDECODABLE
from latdoctor.load.text_tokens import TOKEN_BYTES, packed_tokens, text_tokens, unpacked_tokens

DIGEST_BYTES = 8
_HEADER = struct.Struct(f">Q{DIGEST_BYTES}s")  # number of the turn, digest of its text: readable by the store's script
TAG_BYTES = _HEADER.size
MOST_TOKENS = 4096  # of a turn that is decoded
_LITTLE = "<u2"


class Turn(Struct, frozen=True, gc=False):
    """One turn; `number` counts the turns of its conversation from 0."""

    number: int
    digest: bytes
    tokens: tuple[int, ...]

    @property
    def tag(self) -> bytes:
        """What distinguishes it from every other turn of the conversation."""
        return _HEADER.pack(self.number, self.digest)


class Conversation(Struct, frozen=True, gc=False):
    """The newest turns of a conversation, oldest first; at least one."""

    turns: tuple[Turn, ...]

    @property
    def last(self) -> Turn:
        return self.turns[-1]

    @property
    def tokens(self) -> tuple[int, ...]:
        return tuple(token for turn in self.turns for token in turn.tokens)


class Reconciled(Struct, frozen=True, gc=False):
    """A stored conversation brought up to date with the transcript; `behind`: turns that the store did not have."""

    conversation: Conversation
    behind: int


def turn_of(number: int, text: str) -> Turn:
    """The turn of a text, tokenised."""
    return Turn(number, text_digest(text), tuple(text_tokens(text)))


def text_digest(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=DIGEST_BYTES).digest()


def recomputed(transcript: Sequence[str]) -> Conversation | None:
    """The conversation made again from the whole transcript; None for an empty one."""
    turns = tuple(turn_of(number, text) for number, text in enumerate(transcript))
    return Conversation(turns) if turns else None


def reconcile(stored: Conversation, transcript: Sequence[str]) -> Reconciled | None:
    """`stored` continued to the end of the transcript, or None where it is not a state of this conversation.

    A store that is some turns behind gets only these tokenised. `transcript` may lack the oldest turns.
    """
    said = [text_digest(text) for text in transcript]
    kept = [turn.digest for turn in stored.turns]
    for behind in range(len(said)):
        until = len(said) - behind
        common = min(len(kept), until)
        if kept[-common:] != said[until - common : until]:
            continue
        if len(kept) < until and stored.turns[0].number == 0:
            continue  # it begins in the middle of the conversation without having dropped a turn
        number = stored.last.number + 1
        missing = tuple(turn_of(number + at, text) for at, text in enumerate(transcript[until:]))
        return Reconciled(Conversation((*stored.turns, *missing)), behind)
    return None


def windowed(turns: Sequence[Turn], window: int, max_tokens: int) -> tuple[Conversation, int]:
    """The newest `window` turns (0: all) of at most `max_tokens`, and how many turns the window dropped."""
    kept = turns[-window:] if window else turns
    first, tokens = len(kept) - 1, len(kept[-1].tokens)
    while first > 0 and tokens + len(kept[first - 1].tokens) <= max_tokens:
        first -= 1
        tokens += len(kept[first].tokens)
    return Conversation(tuple(kept[first:])), len(turns) - len(kept)


class StateDifference(Struct, frozen=True, gc=False):
    """What turns one state into another: drop so many of its oldest turns, append these. `drop` None: drop all."""

    drop: int | None
    append: tuple[Turn, ...]


def difference(stored: Conversation | None, desired: Conversation) -> StateDifference:
    """The tokens that are new, and no others."""
    if stored is None:
        return StateDifference(None, desired.turns)
    for drop in range(len(stored.turns)):
        kept = stored.turns[drop:]
        if desired.turns[: len(kept)] == kept:
            return StateDifference(drop, desired.turns[len(kept) :])
    return StateDifference(None, desired.turns)


class _StoredTurn(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The stored form of a turn's tokens. It names no type of Python: decoding constructs nothing else."""

    dtype: str
    shape: tuple[int]
    compressed: bool
    data: bytes


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(_StoredTurn)


def encode_turn(turn: Turn, compress_bytes: int = 0) -> bytes:
    """Tag and MessagePack record of a turn; more than `compress_bytes` of tokens are compressed (0: never)."""
    data = packed_tokens(turn.tokens)
    compressed = 0 < compress_bytes < len(data)
    if compressed:
        import zstandard

        data = zstandard.ZstdCompressor(level=1).compress(data)
    return turn.tag + _ENCODER.encode(_StoredTurn(_LITTLE, (len(turn.tokens),), compressed, data))


def decode_turn(stored: bytes) -> Turn:
    """Raises ValueError for bytes that are no turn."""
    if len(stored) < TAG_BYTES:
        raise ValueError("shorter than a tag")
    number, digest = _HEADER.unpack_from(stored)
    try:
        record = _DECODER.decode(memoryview(stored)[TAG_BYTES:])
    except UNDECODABLE as error:
        raise ValueError(f"no record of a turn: {error}") from error
    (length,) = record.shape
    if record.dtype != _LITTLE or not 0 <= length <= MOST_TOKENS:
        raise ValueError("tokens of another type or number")
    data = _decompressed(record.data, length) if record.compressed else record.data
    if len(data) != length * TOKEN_BYTES:
        raise ValueError("another number of tokens than declared")
    return Turn(number, digest, unpacked_tokens(data))


def _decompressed(data: bytes, length: int) -> bytes:
    import zstandard

    try:
        return zstandard.ZstdDecompressor().decompress(data, max_output_size=length * 2)
    except zstandard.ZstdError as error:
        raise ValueError(f"not compressed tokens: {error}") from error
