"""The reader of pickles: it reads what snapshots are made of, and nothing that could do anything."""

from __future__ import annotations

import os
import pickle
import pickletools
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latdoctor.collectors.torch_memory import safe_unpickle
from latdoctor.errors import SourceError

plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 60), 1 << 62)
    | st.floats(allow_nan=False)
    | st.text(max_size=300)
    | st.binary(max_size=300),
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.tuples(inner)
        | st.tuples(inner, inner, inner, inner)
        | st.dictionaries(st.text(max_size=5) | st.integers(0, 9), inner, max_size=4)
    ),
    max_leaves=30,
)


@given(value=plain, protocol=st.integers(3, 5))
def test_plain_data_comes_back(value: object, protocol: int) -> None:
    assert safe_unpickle.load(pickle.dumps(value, protocol), "x") == value


class Calls:
    """What a hostile pickle is made with: it names a function and what to call it with."""

    def __init__(self, function: Callable[..., object], *arguments: object) -> None:
        self._made = (function, arguments)

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return self._made


@pytest.mark.parametrize("protocol", range(6))
def test_nothing_is_called(tmp_path: Path, protocol: int) -> None:
    target = tmp_path / "made"
    content = pickle.dumps({"segments": [Calls(os.mkdir, str(target))]}, protocol)
    with pytest.raises(SourceError):
        safe_unpickle.load(content, "x")
    assert not target.exists()


HOSTILE = {
    "global": b"cos\nsystem\n(S'true'\ntR.",
    "stack global": b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x04true\x85R.",
    "instance": b"(S'true'\nios\nsystem\n.",
    "object": b"(cos\nsystem\nS'true'\no.",
    "persistent id": b"Psomething\n.",
    "persistent id of the stack": b"\x80\x02K\x01Q.",
    "extension": b"\x80\x02\x82\x01.",
    "build": b"\x80\x02}}b.",
    "new object": b"\x80\x02))\x81.",
    "buffer": b"\x80\x05\x97.",
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
def test_whatever_would_make_an_object_is_named(content: bytes) -> None:
    with pytest.raises(SourceError, match=r"would call or make an object|unknown operation"):
        safe_unpickle.load(content, "x")


def test_every_operation_is_known_or_refused() -> None:
    """Of all operations that Python has, none but those of plain containers is carried out."""
    makes = {"GLOBAL", "STACK_GLOBAL", "REDUCE", "BUILD", "INST", "OBJ", "NEWOBJ", "NEWOBJ_EX", "PERSID", "BINPERSID"}
    makes |= {"EXT1", "EXT2", "EXT4", "NEXT_BUFFER", "READONLY_BUFFER"}
    carried_out = {ord(op.code) for op in pickletools.opcodes} & safe_unpickle._OPERATIONS.keys()
    assert not {op.name for op in pickletools.opcodes if ord(op.code) in carried_out} & makes


BAD = {
    "empty": b"",
    "no stop": b"\x80\x04}",
    "cut within a text": b"\x80\x04X\xff\x00\x00\x00abc",
    "a length beyond the end": b"\x80\x04\x8d" + struct.pack("<Q", 1 << 62) + b"x.",
    "a number of megabytes": b"\x80\x04\x8b" + struct.pack("<i", 1 << 24) + b"\x00" * 64 + b".",
    "a negative length": b"\x80\x04\x8b" + struct.pack("<i", -5) + b".",
    "a memo that was never filled": b"\x80\x04j\xff\xff\xff\x7f.",
    "an empty stack": b"\x80\x040.",
    "no mark": b"\x80\x04u.",
    "an odd number of items": b"\x80\x04}(K\x01u.",
    "a list as a key": b"\x80\x04}]K\x01s.",
    "an append to a dict": b"\x80\x04}K\x01a.",
    "a newer protocol": b"\x80\x63N.",
    "marks without end": b"\x80\x04" + b"(" * 100_000 + b".",
    "not text": b"\x80\x04\x8c\x02\xff\xfe.",
}


@pytest.mark.parametrize("content", BAD.values(), ids=BAD)
def test_what_is_damaged_is_told(content: bytes) -> None:
    with pytest.raises(SourceError):
        safe_unpickle.load(content, "x")


def test_a_memo_number_reserves_nothing() -> None:
    """Python's own reader reserves gigabytes for the place 2^31 of its memo."""
    content = b"\x80\x04}r\xff\xff\xff\x7fj\xff\xff\xff\x7f0."
    assert safe_unpickle.load(content, "x") == {}


def test_a_list_may_hold_itself() -> None:
    found = safe_unpickle.load(b"\x80\x04]\x94h\x00a.", "x")
    assert isinstance(found, list)
    assert found[0] is found


def test_size_and_work_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(safe_unpickle, "MAX_OPERATIONS", 1000)
    with pytest.raises(SourceError, match="more than 1000 operations"):
        safe_unpickle.load(b"\x80\x04" + b"N" * 5000 + b".", "x")
    monkeypatch.setattr(safe_unpickle, "MAX_CONTAINERS", 100)
    with pytest.raises(SourceError, match="more than 100 containers"):
        safe_unpickle.load(b"\x80\x04" + b"}" * 500 + b".", "x")
    monkeypatch.setattr(safe_unpickle, "MAX_BYTES", 10)
    with pytest.raises(SourceError, match="read at most"):
        safe_unpickle.load(b"N" * 20, "x")


@given(st.binary(max_size=200))
def test_any_bytes_give_a_result_or_an_error(content: bytes) -> None:
    for head in (b"", b"\x80\x04"):
        try:
            safe_unpickle.load(head + content, "x")
        except SourceError:
            continue


OPERATIONS = sorted(safe_unpickle._OPERATIONS)


@given(st.lists(st.sampled_from(OPERATIONS) | st.integers(0, 8), max_size=80))
def test_any_operations_give_a_result_or_an_error(codes: list[int]) -> None:
    try:
        safe_unpickle.load(bytes(codes) + b".", "x")
    except SourceError:
        return
