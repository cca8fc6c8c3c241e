"""Which artifacts are text, and of which encoding: a log may have zero bytes, or two or four bytes for each character.

A log that was cut while it was written begins with a hole of zeros, and a program that writes UTF-16 (as PowerShell
does) puts one behind every letter. Neither makes a log a binary file, of which nothing could be looked into.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator

HEAD = 8192  # bytes that tell
GZIP = b"\x1f\x8b"
# Formats that other text would break in: pickles, ELF, zip, zstd, xz, SQLite, NumPy, HDF5, PDF, PNG.
_BINARY = (
    b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05", b"\x7fELF", b"PK\x03\x04", b"\x28\xb5\x2f\xfd", b"\xfd7zXZ",
    b"SQLite format 3\0", b"\x93NUMPY", b"\x89HDF", b"%PDF", b"\x89PNG",
)  # fmt: skip
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_CONTROL = bytes([*range(1, 9), *range(14, 27), 28, 29, 31])
_ODD = 0.05  # share of control characters, from which on it is no text
_ZEROS = 0.3  # share of zeros among the bytes at every other place, from which on they are halves of characters


def is_binary(head: bytes) -> bool:
    """Whether the file that begins with `head` is neither text nor gzip of it."""
    if head.startswith(GZIP) or encoding(head):
        return False
    if head.startswith(_BINARY):
        return True
    kept = head.replace(b"\0", b"")
    zeros = len(head) - len(kept)
    if zeros and _longest_hole(head) < zeros * 0.9 and zeros > 0.1 * len(head):  # spread over it, as numbers have them
        return True
    return len(kept) - len(kept.translate(None, delete=_CONTROL)) > _ODD * len(kept)


def encoding(head: bytes) -> str:
    """The encoding of a text with more than one byte for each character; empty for any other."""
    for mark, name in _MARKS:
        if head.startswith(mark):
            return name
    even, odd = head[: len(head) & ~1 : 2], head[1::2]
    if len(odd) < 8:
        return ""
    zeros = (even.count(0) / len(even), odd.count(0) / len(odd))
    if min(zeros) < 0.05 and max(zeros) > _ZEROS:
        letters = odd if zeros[0] > zeros[1] else even
        if len(letters) - len(letters.translate(None, delete=_CONTROL)) <= _ODD * len(letters):
            return "utf-16-be" if zeros[0] > zeros[1] else "utf-16-le"
    return ""


def decoded(blocks: Iterator[bytes], name: str) -> Iterator[bytes]:
    """The blocks as UTF-8. What is damaged becomes a replacement character."""
    decoder = codecs.getincrementaldecoder(name)("replace")
    for block in blocks:
        yield decoder.decode(block).encode("utf-8", "surrogatepass")
    yield decoder.decode(b"", final=True).encode()


def encoded(raw: bytes, name: str) -> bytes:
    """UTF-8 in another encoding; a byte order mark is a character like others."""
    return raw.decode("utf-8", "replace").encode(name, "replace")


def _longest_hole(head: bytes) -> int:
    """Zeros in a row at most."""
    low, high = 0, len(head)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if b"\0" * middle in head else (low, middle - 1)
    return low
