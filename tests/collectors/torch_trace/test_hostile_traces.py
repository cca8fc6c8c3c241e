"""Traces made to mislead or to exhaust: each gives evidence or a typed error, within bounded time and memory."""

from __future__ import annotations

import gzip
import json
import runpy
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latdoctor.collectors.torch_trace import COLLECTOR, json_stream
from latdoctor.errors import SourceError
from latdoctor.evidence.model import Evidence
from tests.collectors.torch_trace.synthetic_traces import artifact, document, event, launched, values

SOON = 5.0  # s; each takes a fraction of it on a machine with neighbours

CATEGORIES = st.sampled_from(
    [
        "kernel",
        "gpu_memcpy",
        "gpu_memset",
        "cuda_runtime",
        "cuda_driver",
        "cpu_op",
        "python_function",
        "Trace",
        None,
        "x",
    ]
)
NAMES = st.sampled_from(
    [
        "cudaLaunchKernel",
        "cudaMalloc",
        "cudaFree",
        "hipGraphLaunch",
        "cudaDeviceSynchronize",
        "Memcpy HtoD (Pageable -> Device)",
        "ProfilerStep#1",
        "ProfilerStep#x",
        "nn.Module: Linear_0",
        "_compile.compile_inner",
        "",
        None,
    ]
) | st.text(max_size=6)
TIMES = st.integers(0, 500).map(float) | st.sampled_from([0.0, -1.0, 1e15, 1e18, 1e19, -1e18, None, 60_000.0, 0.001])
ANYTHING = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["0", 1.5, 1e300, [1], {"a": 1}, 2**70])
EVENTS = st.fixed_dictionaries(
    {"ph": st.just("X"), "cat": CATEGORIES, "name": NAMES, "ts": TIMES, "dur": TIMES},
    optional={
        "args": st.none()
        | st.fixed_dictionaries(
            {},
            optional={
                "device": st.none() | st.integers(-2, 200) | st.text(max_size=2),
                "bytes": st.none() | st.sampled_from([0, -5, 1e308, 4096]),
                "returnValue": st.none() | st.integers(-1, 800) | st.text(max_size=3),
                "External id": ANYTHING,
                "external id": ANYTHING,
            },
        )
    },
)


def parsed(content: bytes) -> Evidence | SourceError:
    try:
        return COLLECTOR.parse((artifact(content),))
    except SourceError as error:
        return error


@given(st.lists(EVENTS, max_size=30))
def test_whatever_events_hold_every_value_is_finite_and_nothing_is_both_read_and_hidden(events: list[object]) -> None:
    found = parsed(json.dumps({"traceEvents": events}).encode())
    if isinstance(found, SourceError):
        assert found.next_step
        return
    for reading in found.readings:
        assert isinstance(reading.value, float)
        assert 0 <= reading.value < float("inf"), reading
    for signal in ("gpu.busy_ratio", "kernel.tiny_ratio", "gap.share", "sync.time_share", "sync.idle_share"):
        assert values(found).get(signal, 0.0) <= 1 + 1e-9


def test_a_copy_of_an_impossible_size_has_no_bandwidth() -> None:
    copy = {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy HtoD", "ts": 0.0, "dur": 1.0, "args": {"bytes": 1e308}}
    found = parsed(json.dumps({"traceEvents": [event("kernel", "k", 0.0, 1.0), copy]}).encode())
    assert isinstance(found, Evidence)
    assert "copy.bandwidth" not in values(found)


@settings(max_examples=200)
@given(st.binary(max_size=200))
def test_any_bytes_give_evidence_or_a_source_error(content: bytes) -> None:
    for text in (content, b'{"traceEvents": [' + content, gzip.compress(content)):
        found = parsed(text)
        assert isinstance(found, Evidence) or (found.where == "made.json" and found.next_step)


LURE = b'{"a":[' + b'{"traceEvents":[]},' * 200_000 + b'0],"traceEvents":[]}'
HOSTILE: dict[str, Callable[[], bytes]] = {
    "decoys of the key": lambda: LURE,
    "a string of borders": lambda: document([event("kernel", "}, {" * 500_000, 0.0, 1.0, device=0)]),
    "blanks": lambda: b'{"traceEvents": [' + b" " * 5_000_000 + b"]}",
    "braces and blanks": lambda: b"[" + b"}           " * 500_000,
    "borders only": lambda: b"[" + b"},{" * 1_000_000,
    "nested lists": lambda: b'{"traceEvents": [' + b"[" * 1_000_000 + b"]" * 1_000_000 + b"]}",
    "nested objects": lambda: b'{"traceEvents": [{"args": ' + b'{"a":' * 500_000,
    "numbers": lambda: b"[" + b"1," * 1_000_000 + b"1]",
    "one endless number": lambda: b'[{"ph":"X","ts":' + b"9" * 3_000_000 + b"}]",
    "not a number everywhere": lambda: b'[{"a":' + b"nan,".join([b'"b":'] * 200_000) + b"1}]",
    "quotes": lambda: b'{"traceEvents": [' + b'"' * 2_000_000,
    "backslashes": lambda: b'[{"ph":"X","name":"' + b"\\" * 3_000_000,
    "a bomb in gzip": lambda: gzip.compress(b'{"traceEvents": [' + b" " * 100_000_000),
    "many names": lambda: document(
        [event("cpu_op", f"name {at} " + "x" * 50, float(at), 1.0, **{"External id": at}) for at in range(30_000)]
    ),
    "many devices": lambda: document([event("kernel", "k", float(at), 1.0, device=at) for at in range(20_000)]),
    "many steps": lambda: document(
        [event("user_annotation", f"ProfilerStep#{at}", float(at), 1.0) for at in range(30_000)]
    ),
    "all at once": lambda: document([event("kernel", "k", 5.0, 1.0, device=0) for _ in range(20_000)]),
    "damaged events": lambda: document([event("kernel", "k", -1e30, 1.0) for _ in range(20_000)]),
}


@pytest.mark.parametrize("make", HOSTILE.values(), ids=HOSTILE)
def test_what_is_made_to_take_long_does_not(make: Callable[[], bytes]) -> None:
    content = make()
    started = time.process_time()
    found = parsed(content)
    assert time.process_time() - started < SOON
    assert isinstance(found, Evidence) or found.next_step


# What a reader that repairs loosely lets through: each must be refused, or told as a gap.
WHOLE = document(launched(200))
AT = WHOLE.index(b'"cudaLaunchKernel"', len(WHOLE) // 4)
DAMAGED: dict[str, bytes] = {
    "an unescaped quote": WHOLE[:AT] + b'"cuda"Launch"' + WHOLE[AT + 18 :],
    "a hole of zeros": WHOLE[:AT] + b"\0" * 300 + WHOLE[AT + 300 :],
    "an escape that is none": WHOLE[:AT] + rb'"cuda\NLaunch"' + WHOLE[AT + 18 :],
    "a missing comma": WHOLE.replace(b"}}, {", b"}} {", 1),
    "a missing brace": WHOLE.replace(b"}}, {", b"}, {", 1),
    "lines of events": b"\n".join(json.dumps(one).encode() for one in launched(20)),
    "comments": WHOLE.replace(b"[", b"[ // the events\n", 1),
    "two documents": WHOLE + WHOLE,
    "the end is missing": WHOLE[: len(WHOLE) // 2],
    "a second list of events": WHOLE[:-1] + b', "more": [}' + b"}",
}


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)
def test_damage_is_never_passed_over(content: bytes) -> None:
    found = parsed(content)
    if isinstance(found, Evidence):
        assert any("damaged" in gap.reason for gap in found.gaps)
    else:
        assert found.next_step


@pytest.mark.parametrize("base", [10**400, -(10**30), 1e300, "soon", None])
def test_a_base_of_time_that_is_none_is_passed_over(base: object) -> None:
    text = json.dumps({"traceEvents": launched(5), "baseTimeNanoseconds": base}).encode()
    assert values(COLLECTOR.parse((artifact(text),)))["trace.kernels"] == 5


def test_a_tail_too_long_to_be_read_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_stream, "MAX_WINDOW", 10_000)
    monkeypatch.setattr(json_stream, "PIECE", 1000)
    text = WHOLE[:-1] + b', "memory": [' + b"1, " * 2_000_000 + b"1]}"
    found = COLLECTOR.parse((artifact(text),))
    assert any("too long to be read" in gap.reason for gap in found.gaps)


def test_the_list_of_fuzzed_parsers_runs(tmp_path: Path) -> None:
    fuzz = runpy.run_path(str(Path(__file__).parents[3] / "bench" / "fuzz.py"))
    for name, parser in fuzz["PARSERS"].items():
        assert fuzz["at_random"](fuzz["watched"](parser), parser.seeds, 0.3, 1, tmp_path) == 0, name
