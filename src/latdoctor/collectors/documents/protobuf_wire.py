"""The wire format of protocol buffers, as far as event files of TensorBoard need it: fields by number.

The packages that read such files bring pandas, TensorFlow's protos and gRPC along; the wire format itself is fixed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MAX_VARINT = 10  # bytes


def fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Each field's number and value: an unsigned integer, or the raw bytes of 4, 8 or any length. Raises ValueError."""
    position = 0
    while position < len(message):
        key, position = _varint(message, position)
        number, kind = key >> 3, key & 7
        if kind == _VARINT:
            value, position = _varint(message, position)
            yield number, value
            continue
        if kind == _BYTES:
            size, position = _varint(message, position)
        elif kind in (_FIXED64, _FIXED32):
            size = 8 if kind == _FIXED64 else 4
        else:
            raise ValueError(f"a field of unknown type {kind}")
        if size > len(message) - position:
            raise ValueError("a field is longer than its message")
        yield number, message[position : position + size]
        position += size


def _varint(message: bytes, position: int) -> tuple[int, int]:
    """The integer at `position`, and where it ends."""
    value = 0
    for length, byte in enumerate(message[position : position + _MAX_VARINT]):
        value |= (byte & 0x7F) << (7 * length)
        if not byte & 0x80:
            return value, position + length + 1
    raise ValueError("an integer has no end")


def text(value: int | bytes) -> str:
    """The text of a field of bytes; empty for another field."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else ""


def double(value: int | bytes) -> float:
    """The number of a field of 8 bytes. Raises ValueError for another field."""
    return _unpacked("<d", value, 8)


def single(value: int | bytes) -> float:
    """The number of a field of 4 bytes. Raises ValueError for another field."""
    return _unpacked("<f", value, 4)


def _unpacked(form: str, value: int | bytes, size: int) -> float:
    if not isinstance(value, bytes) or len(value) != size:
        raise ValueError(f"a number of {size} bytes is missing")
    return float(struct.unpack(form, value)[0])


def numbers(value: int | bytes, size: int) -> tuple[float, ...]:
    """The packed numbers of 4 or 8 bytes each, little-endian. Raises ValueError for another field."""
    if not isinstance(value, bytes) or len(value) % size:
        raise ValueError("packed numbers are cut")
    return struct.unpack(f"<{len(value) // size}{'d' if size == 8 else 'f'}", value)
