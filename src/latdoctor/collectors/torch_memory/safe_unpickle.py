"""A reader of pickles that can make nothing but plain containers: dict, list, tuple, text, bytes, number, bool, None.

Python's own reader runs what a pickle names; even with `find_class` and `persistent_load` closed it keeps doors open: a
memo number of 2^31 makes it reserve gigabytes, and nested tuples as keys take it for ever to hash. This one knows the
few operations that a snapshot of PyTorch's allocator consists of and refuses all others by name, before anything is
made. Every operation takes at least one byte of the file and makes at most one thing, and both are counted: a
file made to be as costly as it can takes some seconds and at most 0.8 GB. What is read may still refer to itself, or to
one thing a million times: a caller that walks it must count.

The operations are those of CPython's `pickletools`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

from latdoctor.errors import SourceError

MAX_BYTES = 64 << 20
MAX_OPERATIONS = 10_000_000
MAX_CONTAINERS = 2_000_000
_MAX_INT = 16  # bytes of a number: addresses have 8
_MAX_MARKS = 64  # nested containers under construction; a snapshot has six
_HIGHEST = 5  # protocol
_NAMES = {
    b"c": "GLOBAL", b"\x93": "STACK_GLOBAL", b"R": "REDUCE", b"b": "BUILD", b"i": "INST", b"o": "OBJ",
    b"\x81": "NEWOBJ", b"\x92": "NEWOBJ_EX", b"P": "PERSID", b"Q": "BINPERSID", b"\x82": "EXT1",
    b"\x83": "EXT2", b"\x84": "EXT4", b"\x97": "NEXT_BUFFER", b"\x98": "READONLY_BUFFER",
}  # fmt: skip
_KEYS: Final = (str, int, float, bytes, bool, type(None))


def load(content: bytes, where: str) -> object:
    """What a pickle holds. Raises SourceError for one that is damaged, too large, or would make anything else."""
    if len(content) > MAX_BYTES:
        raise SourceError(
            f"{len(content) >> 20} MiB is more than the {MAX_BYTES >> 20} MiB that are read at most",
            where=where,
            next_step="record fewer entries: torch.cuda.memory._record_memory_history(max_entries=100000)",
        )
    reader = _Reader(content, where)
    try:
        return reader.run()
    except (IndexError, struct.error, UnicodeDecodeError, TypeError, KeyError, AttributeError) as error:
        # Each is a slip of the file: a stack that is too short, a value of the wrong kind, an end too early.
        raise reader.damaged(f"{type(error).__name__} at byte {reader.at}") from error


class _Reader:
    """One pass over the operations: a stack of values, one of marks, and the memo."""

    def __init__(self, content: bytes, where: str) -> None:
        self._content, self._where = content, where
        self.at = 0
        self._stack: list[object] = []
        self._marks: list[list[object]] = []
        self._memo: dict[int, object] = {}
        self._containers = 0

    def damaged(self, what: str) -> SourceError:
        return SourceError(
            f"is no readable pickle: {what}",
            where=self._where,
            next_step="write it again: torch.cuda.memory._dump_snapshot(FILE)",
        )

    def run(self) -> object:
        content, known = self._content, _OPERATIONS
        for _ in range(MAX_OPERATIONS):
            code = content[self.at]
            self.at += 1
            if code == _STOP:
                return self._stack.pop()
            operation = known.get(code)
            if operation is None:
                raise self._refused(bytes((code,)))
            operation(self)
        raise self.damaged(f"it has more than {MAX_OPERATIONS} operations")

    def _refused(self, code: bytes) -> SourceError:
        name = _NAMES.get(code)
        if name is None:
            return self.damaged(f"unknown operation {code!r} at byte {self.at - 1}")
        return SourceError(
            f"holds more than plain data: {name} at byte {self.at - 1} would call or make an object, and was not run",
            where=self._where,
            next_step="do not open this file with anything else; take a snapshot of your own",
        )

    def take(self, size: int) -> bytes:
        """The next `size` bytes."""
        if size < 0 or self.at + size > len(self._content):
            raise self.damaged(f"it ends at byte {len(self._content)}, within a value")
        self.at += size
        return self._content[self.at - size : self.at]

    def number(self, form: str) -> int:
        found: int
        (found,) = struct.unpack(form, self.take(struct.calcsize(form)))
        return found

    def push(self, value: object) -> None:
        self._stack.append(value)

    def push_container(self, value: dict[object, object] | list[object] | tuple[object, ...]) -> None:
        self._containers += 1
        if self._containers > MAX_CONTAINERS:
            raise self.damaged(f"it has more than {MAX_CONTAINERS} containers")
        self._stack.append(value)

    def pop(self) -> object:
        return self._stack.pop()

    def mark(self) -> None:
        if len(self._marks) >= _MAX_MARKS:
            raise self.damaged(f"it is nested more than {_MAX_MARKS} deep")
        self._marks.append(self._stack)
        self._stack = []

    def since_mark(self) -> list[object]:
        found = self._stack
        self._stack = self._marks.pop()
        return found

    def remember(self, number: int) -> None:
        self._memo[number] = self._stack[-1]

    def recall(self, number: int) -> None:
        self._stack.append(self._memo[number])

    def memoize(self) -> None:
        self.remember(len(self._memo))

    def long(self, size: int) -> None:
        if size > _MAX_INT:
            raise self.damaged(f"a number of {size} bytes at byte {self.at}")
        self.push(int.from_bytes(self.take(size), "little", signed=True))

    def tuple_of(self, count: int) -> None:
        if len(self._stack) < count:
            raise IndexError
        items = tuple(self._stack[len(self._stack) - count :])
        del self._stack[len(self._stack) - count :]
        self.push_container(items)

    def append(self, items: list[object]) -> None:
        target = self._stack[-1]
        if not isinstance(target, list):
            raise self.damaged(f"something is appended to what is no list at byte {self.at}")
        target.extend(items)

    def set_items(self, items: list[object]) -> None:
        target = self._stack[-1]
        if not isinstance(target, dict) or len(items) % 2:
            raise self.damaged(f"something is put into what is no dict at byte {self.at}")
        for key, value in zip(items[::2], items[1::2], strict=True):
            if not isinstance(key, _KEYS):
                raise self.damaged(f"a container as a key at byte {self.at}")
            target[key] = value

    def protocol(self) -> None:
        if self.number("<B") > _HIGHEST:
            raise self.damaged("it is of a newer protocol")


_STOP = ord(".")
_Operation = Callable[[_Reader], None]


def _set_item(reader: _Reader) -> None:
    value, key = reader.pop(), reader.pop()
    reader.set_items([key, value])


def _text(form: str) -> _Operation:
    return lambda reader: reader.push(reader.take(reader.number(form)).decode("utf-8", "surrogatepass"))


def _bytes(form: str) -> _Operation:
    return lambda reader: reader.push(reader.take(reader.number(form)))


def _whole(form: str) -> _Operation:
    return lambda reader: reader.push(reader.number(form))


def _float(reader: _Reader) -> None:
    reader.push(struct.unpack(">d", reader.take(8))[0])


def _drop(_: object) -> None:
    """Drops what was taken."""


def _append_one(reader: _Reader) -> None:
    value = reader.pop()
    reader.append([value])


def _push_tuple(reader: _Reader) -> None:
    reader.push_container(tuple(reader.since_mark()))


def _push_list(reader: _Reader) -> None:
    reader.push_container(reader.since_mark())


def _push_dict(reader: _Reader) -> None:
    items = reader.since_mark()
    reader.push_container({})
    reader.set_items(items)


_OPERATIONS: Final[dict[int, _Operation]] = {
    0x80: _Reader.protocol,
    0x95: lambda reader: _drop(reader.take(8)),  # FRAME: its length is a hint
    ord("("): _Reader.mark,
    ord("0"): lambda reader: _drop(reader.pop()),
    ord("}"): lambda reader: reader.push_container({}),
    ord("]"): lambda reader: reader.push_container([]),
    ord(")"): lambda reader: reader.push(()),
    ord("N"): lambda reader: reader.push(None),
    0x88: lambda reader: reader.push(True),
    0x89: lambda reader: reader.push(False),
    ord("J"): _whole("<i"),
    ord("K"): _whole("<B"),
    ord("M"): _whole("<H"),
    0x8A: lambda reader: reader.long(reader.number("<B")),
    0x8B: lambda reader: reader.long(reader.number("<i")),
    ord("G"): _float,
    0x8C: _text("<B"),
    ord("X"): _text("<I"),
    0x8D: _text("<Q"),
    ord("C"): _bytes("<B"),
    ord("B"): _bytes("<I"),
    0x8E: _bytes("<Q"),
    0x85: lambda reader: reader.tuple_of(1),
    0x86: lambda reader: reader.tuple_of(2),
    0x87: lambda reader: reader.tuple_of(3),
    ord("t"): _push_tuple,
    ord("d"): _push_dict,
    ord("l"): _push_list,
    ord("a"): _append_one,
    ord("e"): lambda reader: reader.append(reader.since_mark()),
    ord("s"): _set_item,
    ord("u"): lambda reader: reader.set_items(reader.since_mark()),
    ord("q"): lambda reader: reader.remember(reader.number("<B")),
    ord("r"): lambda reader: reader.remember(reader.number("<I")),
    ord("h"): lambda reader: reader.recall(reader.number("<B")),
    ord("j"): lambda reader: reader.recall(reader.number("<I")),
    0x94: _Reader.memoize,
}
