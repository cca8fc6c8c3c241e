"""Reading events: the stream gives what a parse of the whole document gives, and damage never passes for less."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from latdoctor.collectors.torch_trace import COLLECTOR, json_stream
from latdoctor.collectors.torch_trace.events import TraceEvent
from latdoctor.collectors.torch_trace.json_stream import KinetoReader
from latdoctor.errors import SourceError
from tests.collectors.torch_trace.synthetic_traces import artifact, document, evidence, kernel, launched, values

# Names that look like the border between two events, or like the end of the list.
TRICKY = st.sampled_from(
    ["}, {", '}],"x":[{', '"traceEvents": [', "\\", '\\"', "a\tb", "{", "]}", "ü→𝕏", "\x00\x1b[31m", ", ", "},{" * 20]
)
NAMES = TRICKY | st.text(max_size=8)
NUMBERS = st.none() | st.integers(-(10**6), 10**16) | st.floats(-1e6, 1e15)
NESTED = st.recursive(
    NAMES | st.integers() | st.none() | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
EVENTS = st.fixed_dictionaries(
    {},
    optional={
        "ph": st.sampled_from(["X", "i", "s", "M"]),
        "cat": st.none() | NAMES,
        "name": st.none() | NAMES,
        "ts": NUMBERS,
        "dur": NUMBERS,
        "pid": NESTED,
        "tid": st.integers() | NAMES,
        "args": st.none() | st.fixed_dictionaries({"bytes": NUMBERS, "Input Dims": NESTED}),
        "other": NESTED,
    },
)
LAYOUTS = st.sampled_from(
    [
        {"separators": (",", ":")},
        {"indent": 1},
        {"indent": 4, "ensure_ascii": False},
        {"separators": (" ,\r\n ", "\t: ")},
        {},
    ]
)


def read(content: bytes, piece: int) -> list[TraceEvent]:
    reader = KinetoReader(content, "made", piece=piece)
    found = [one for batch in reader.batches() for one in batch]
    assert reader.damage.count == 0
    assert reader.events == len(found)
    return found


@given(
    st.lists(EVENTS, max_size=12),
    LAYOUTS,
    st.integers(1, 400),
    st.booleans(),
    st.booleans(),
    st.dictionaries(NAMES.filter(lambda key: key != "traceEvents"), NESTED, max_size=3),
    st.dictionaries(NAMES.filter(lambda key: key != "traceEvents"), NESTED, max_size=3),
)
def test_the_stream_gives_what_the_whole_gives(
    events: list[object],
    layout: dict[str, object],
    piece: int,
    bare: bool,
    packed: bool,
    before: dict[str, object],
    after: dict[str, object],
) -> None:
    whole = events if bare else {**before, "traceEvents": events, **{k: v for k, v in after.items() if k not in before}}
    text = json.dumps(whole, **layout).encode("utf-8", "replace")
    expected = msgspec.json.decode(json.dumps(events), type=list[TraceEvent])
    assert read(gzip.compress(text) if packed else text, piece) == expected


@given(st.lists(EVENTS, min_size=1, max_size=6), LAYOUTS, st.integers(1, 200), st.data())
def test_a_trace_that_is_cut_off_is_refused(
    events: list[object], layout: dict[str, object], piece: int, data: st.DataObject
) -> None:
    text = json.dumps({"traceEvents": events, "traceName": "x"}, **layout).encode("utf-8", "replace")
    cut = data.draw(st.integers(0, len(text) - 1))
    with pytest.raises(SourceError):
        read(text[:cut], piece)


@given(st.integers(0, 10**6), st.binary(min_size=1, max_size=6), st.booleans())
@example(30, b"\xff\xff", False)
@example(0, b"\x00", True)
def test_damage_anywhere_is_a_source_error_or_evidence(where: int, junk: bytes, packed: bool) -> None:
    text = document(launched(12))
    content = gzip.compress(text) if packed else text
    at = where % len(content)
    broken = artifact(content[:at] + junk + content[at + len(junk) :])
    refused, found = None, None
    try:
        found = COLLECTOR.parse((broken,))
    except SourceError as error:
        refused = error
    assert (found is not None and found.readings) or (refused is not None and refused.where == "made.json")


WHOLE = document(launched(3))
PACKED = gzip.compress(WHOLE)
BAD: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "is empty"),
    "blank": (b" \n\t", "is empty"),
    "text": (b"2026-11-20 server started", "not JSON"),
    "binary": (b"\x00\x01\x02\x03", "not JSON"),
    "object without events": (b'{"schemaVersion": 1}', "without traceEvents"),
    "events deeper down": (b'{"data": {"traceEvents": [{"ph": "X", "ts": 1, "dur": 1}]}}', "without traceEvents"),
    "events that are no list": (b'{"traceEvents": {"ph": "X"}}', "not a list"),
    "no events": (b'{"traceEvents": []}', "holds no events"),
    "bare list without events": (b"[]", "holds no events"),
    "only instants": (b'[{"ph": "i", "ts": 1, "name": "x"}]', "without a duration"),
    "list of numbers": (b"[1, 2, 3]", "3 of 3 events are damaged"),
    "cut inside an event": (WHOLE[:400], "cut off"),
    "cut between events": (WHOLE[: WHOLE.rindex(b"}, {") + 1], "cut off near event 5"),
    "cut before its last bracket": (WHOLE[:-1], "after its last event"),
    "two documents": (WHOLE + WHOLE, "after its last event"),
    "a hole of zeros": (WHOLE[:300] + b"\0" * 300 + WHOLE[600:], "near event 3, byte 300"),
    "a missing colon": (WHOLE.replace(b'"dur": 50.0', b'"dur" 50.0', 1), "near event 2"),
    "endless nesting": (b'{"traceEvents": [' + b"[" * 200_000, "nested too deeply"),
    "cut gzip": (PACKED[:-30], "compressed data is cut off"),
    "gzip head only": (b"\x1f\x8b", "compressed data is cut off"),
    "damaged gzip": (
        gzip.compress(WHOLE)[:20] + b"\xff" * 40 + gzip.compress(WHOLE)[60:],
        "compressed data is damaged",
    ),
    "rubbish after gzip": (PACKED + b"rubbish", "compressed data is damaged"),
}


@pytest.mark.parametrize(("content", "told"), BAD.values(), ids=BAD)
def test_bad_files_are_refused_with_the_reason_and_a_next_step(content: bytes, told: str) -> None:
    with pytest.raises(SourceError) as caught:
        COLLECTOR.parse((artifact(content, "bad.json.gz"),))
    assert told in str(caught.value)
    assert caught.value.where == "bad.json.gz"
    assert caught.value.next_step


def damaged(**changes: object) -> list[dict[str, object]]:
    return [*launched(60), kernel(9000.0, 5.0) | changes]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"ts": "soon"}, "event 121: Expected `float | null`, got `str`"),
        ({"dur": "long"}, "event 121: Expected"),
        ({"args": [1]}, "event 121: Expected"),
        ({"name": 7}, "event 121: Expected"),
        ({"dur": -5.0}, "kernel 'gemm' has the time 9000.0 and the duration -5.0"),
        ({"dur": None}, "duration None"),
        ({"ts": None}, "time None"),
        ({"ts": 1e30}, "time 1e+30"),
    ],
)
def test_one_damaged_event_is_told_and_left_out(changes: dict[str, object], told: str) -> None:
    found = evidence(damaged(**changes))
    assert values(found)["trace.kernels"] == 60
    [gap] = [gap for gap in found.gaps if "damaged" in gap.reason]
    assert "1 of 121 events is damaged and left out" in gap.reason
    assert told in gap.reason
    assert gap.next_step


def test_many_damaged_events_are_refused() -> None:
    with pytest.raises(SourceError, match="2 of 122 events are damaged"):
        evidence([*damaged(ts="soon"), {"ph": 5}])


def test_names_of_damaged_events_are_made_harmless() -> None:
    found = evidence(damaged(dur=-1.0, name="\x1b[31mred\u202e"))
    assert not any("\x1b" in gap.reason or "\u202e" in gap.reason for gap in found.gaps)


@pytest.mark.parametrize("value", [b"inf", b"-inf", b"nan", b"NaN", b"Infinity"])
def test_values_that_json_lacks_are_passed_over_where_they_are_not_used(value: bytes) -> None:
    text = document([kernel(0.0, 20.0, bandwidth="here"), *launched(3, start=100.0)])
    found = COLLECTOR.parse((artifact(text.replace(b'"here"', value)),))
    assert values(found)["trace.kernels"] == 4
    assert not [gap for gap in found.gaps if "damaged" in gap.reason]


def test_an_infinite_duration_is_damage() -> None:
    text = document([*launched(3), kernel(900.0, 1.0)])
    found = COLLECTOR.parse((artifact(text.replace(b'"dur": 1.0', b'"dur": inf')),))
    assert values(found)["trace.kernels"] == 3
    assert any("1 of 7 events is damaged" in gap.reason for gap in found.gaps)


def test_names_that_are_not_utf8_are_read() -> None:
    text = document(launched(3)).replace(b"gemm", b"g\xff\xfem")
    assert values(COLLECTOR.parse((artifact(text),)))["trace.kernels"] == 3


@pytest.mark.parametrize(
    "pack", [lambda data: data, gzip.compress, lambda data: b"\xef\xbb\xbf" + data], ids=["plain", "gzip", "marked"]
)
@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_compression_is_told_by_the_content_not_by_the_name(
    pack: Callable[[bytes], bytes], name: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_bytes(pack(document(launched(3))))
    assert values(COLLECTOR.parse((artifact(path, name),)))["trace.kernels"] == 3


def test_more_bytes_than_the_limit_are_refused() -> None:
    bomb = gzip.compress(b" " * 100_000)
    with pytest.raises(SourceError, match="more than the"):
        json_stream.StreamBuffer(json_stream.DecompressedSource(bomb, "bomb", limit=50_000), 1000).fill(100_000)


def test_a_file_that_is_gone_is_a_source_error(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="cannot be read"):
        COLLECTOR.parse((artifact(tmp_path / "gone.json"),))


def test_an_event_larger_than_a_window_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_stream, "MAX_WINDOW", 4000)
    huge = document([kernel(0.0, 1.0), kernel(1.0, 1.0, blob="x" * 50_000), kernel(2.0, 1.0)])
    with pytest.raises(SourceError, match="holds an event of more than"):
        read(huge, piece=500)
