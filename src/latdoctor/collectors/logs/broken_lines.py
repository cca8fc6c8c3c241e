"""Lines that a terminal, a chat or a mail broke in two, and lines that end in the middle of a message. Pure.

The further lines of a broken one have no prefix of a log. Where a message that rules something out begins at the end of
one line and goes on in the next, the two are read as one; where that makes no message either, nothing is clear.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from latdoctor.collectors.logs import CUDA_ERROR, GPU_LOST, OOM_KILL, SXID, XID

MOST_LINES = 3  # further lines of one that was broken
_TAIL = 40  # bytes at the end of a line in which a piece may begin
# What begins the messages whose absence counts, and what they report.
_MESSAGES: tuple[tuple[bytes, tuple[str, ...]], ...] = (
    (b"NVRM: Xid (", (XID, GPU_LOST)),
    (b"fallen off the bus", (GPU_LOST,)),
    (b": SXid (", (SXID,)),
    (b"Out of memory: Kill", (OOM_KILL,)),
    (b"oom-kill:constraint=", (OOM_KILL,)),
    (b"Killed process ", (OOM_KILL,)),
    (b"CUDA out of memory", (CUDA_ERROR,)),
    (b"CUDA error: ", (CUDA_ERROR,)),
)
_FEWEST = 3  # bytes of a piece at the end of a text, behind which nothing follows
_PIECES = tuple({message[:size].rstrip() for message, _ in _MESSAGES for size in range(1, len(message))})
_ENDS_IN_PIECE = re.compile(
    rb"(?:^|(?<=\W))(?:%b)[ \t\r]*$" % b"|".join(re.escape(one) for one in sorted(_PIECES, key=len, reverse=True))
)
# A message of these has begun, but is in no form that is read.
_BEGUN: tuple[tuple[re.Pattern[str], tuple[str, ...]], ...] = (
    (re.compile(r"NVRM: Xid\b"), (XID, GPU_LOST)),
    (re.compile(r"nvidia-nvswitch\d{1,4}: SXid\b(?!.{0,60}, *(?:Severity|Data)\b)"), (SXID,)),
    (re.compile(r"(?:Out of memory|[Mm]emory cgroup out of memory): Kill|oom-kill:constraint="), (OOM_KILL,)),
    (re.compile(r"Killed process \d"), (OOM_KILL,)),
)
_WORDS = ("Xid", "emory", "oom-kill", "Killed")  # one of them is in each of these
_NUMBER_AT_END = re.compile(rb"[\d.,]*\d$")


def without_cut_number(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """The blocks of a log; a number at the end of a last line that nothing ends is left out: it may go on."""
    for block in blocks:
        yield block if block.endswith(b"\n") else _NUMBER_AT_END.sub(b"", block)


def begun_in(message: str) -> tuple[str, ...]:
    """The signals of a kernel message that begins in `message`."""
    if not any(word in message for word in _WORDS):
        return ()
    return next((signals for begin, signals in _BEGUN if begin.search(message)), ())


def ends_in_piece(raw: bytes) -> bool:
    """Whether a line ends in what may be the beginning of a message."""
    tail = raw[-_TAIL:].rstrip()
    return tail.endswith(_PIECES) and _ENDS_IN_PIECE.search(tail) is not None


def spanning(first: bytes, second: bytes) -> tuple[str, ...]:
    """The signals of a message that begins at the end of `first` and goes on in `second`."""
    tail, head = first[-_TAIL:].rstrip(), second.lstrip(b"> \t")[:_TAIL].rstrip()
    for message, signals in _MESSAGES:
        for size in range(1, len(message)):
            rest = message[size:].lstrip()
            shorter = min(len(rest), len(head))
            if shorter and tail.endswith(message[:size].rstrip()) and head[:shorter] == rest[:shorter]:
                return signals
    return ()


def cut_short(raw: bytes) -> tuple[str, ...]:
    """The signals of a message of which `raw`, the last line of a text, has only a beginning."""
    tail = raw[-_TAIL:].rstrip()
    for message, signals in _MESSAGES:
        if any(tail.endswith(message[:size].rstrip()) for size in range(_FEWEST, len(message) + 1)):
            return signals
    return ()


def joinings(first: bytes, further: Sequence[bytes]) -> Iterator[bytes]:
    """What a broken line may have been: with each further line, as it is and with a space between."""
    direct = spaced = first.rstrip(b"\r")
    for one in further[:MOST_LINES]:
        direct += one.rstrip(b"\r")
        spaced += b" " + one.strip()
        yield direct
        yield spaced
