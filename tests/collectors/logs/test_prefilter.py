"""What the search over bytes finds is what reading every line finds, in any log, block by block, in bounded time."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latdoctor.collectors.base import CollectRequest
from latdoctor.collectors.logs import CUDA_ERROR, candidates, formats, line_reading, log_blocks
from latdoctor.collectors.logs import collector as logs
from latdoctor.collectors.logs.line_kinds import CANDIDATE
from latdoctor.collectors.runner import SystemClock
from latdoctor.collectors.time_range import TimeRange, with_time_range
from latdoctor.errors import SourceError
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import Evidence
from latdoctor.evidence.prefilter import Prefilter

NOON = 1769860800.0  # 2026-01-31T12:00:00Z
TELLING = [
    "NVRM: Xid (PCI:0000:9b:00): 48, pid=7, name=x, DBE",
    "2026-01-31T11:58:00Z gpu-7 kernel: NVRM: Xid (PCI:0000:9b:00): 79, pid=7, GPU has fallen off the bus.",
    "[ 1843.308145] Out of memory: Killed process 4242 (python3) total-vm:1kB",
    "ERROR 01-31 11:58:00 [a.py:1] RuntimeError: CUDA error: unknown error",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
    "INFO:     Started server process [42]",
    "INFO 01-31 11:58:00 [a.py:1] Starting to load model a/b...",
    "INFO 01-31 11:58:00 [a.py:1] Avg prompt throughput: 1.0 tokens/s, Avg generation throughput: 2.0 tokens/s, "
    "Running: 1 reqs, Waiting: 3 reqs, GPU KV cache usage: 4.0%",
    "config file reloaded",
    "Failed to initialize NVML: Driver/library version mismatch",
    'web-1  | {"message": "CUDA error: unknown error", "time": "2026-01-31T11:58:01Z"}',
]
OTHER = [
    "",
    '  File "a.py", line 3, in b',
    "INFO 01-31 11:57:59 [a.py:1] step 7",
    "2026-01-31T11:57:59Z gpu-7 kernel: usb 1-1: x",
    "2026-01-31T11:57:59Z gpu-7 vllm[7]: ready",
    "Traceback (most recent call last):",
    "\x00\x01\udcff",
    "é" * 40,
    "[ 1.000000] a",
]
LINES = st.lists(st.sampled_from(TELLING) | st.sampled_from(OTHER) | st.text(max_size=30), min_size=1, max_size=60)


def read(content: bytes, asked: TimeRange | None = None) -> Evidence | None:
    log = Artifact("logs/a", "logs", "a", "a", NOON, content)
    try:
        return logs.READER.parse(with_time_range(log, asked))
    except SourceError:
        return None


@pytest.fixture
def every_line(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Switches between reading every line in full and reading those that the search finds, in small blocks."""

    def switch(on: bool, head: int = 0) -> None:
        monkeypatch.setattr(line_reading, "HEAD_LINES", 1 << 30 if on else head)
        monkeypatch.setattr(log_blocks, "BLOCK", 1 << 20 if on else 300)
        monkeypatch.setattr(Prefilter, "lines", _all if on else FOUND)

    return switch


FOUND = Prefilter.lines


def _all(self: Prefilter, block: bytes, start: int = 0) -> Iterator[tuple[int, int]]:
    """Every line, filtered one by one by Python's own `re`."""
    wanted = re.compile(b"|".join(self.needles), re.MULTILINE)
    for found in re.compile(rb"[^\n]*(?:\n|\Z)").finditer(block, start):
        if found[0] and wanted.search(found[0].removesuffix(b"\n")):
            yield found.start(), found.start() + len(found[0].removesuffix(b"\n"))


@pytest.mark.parametrize("asked", [None, TimeRange(NOON - 1800, NOON, 300.0)])
@pytest.mark.parametrize("wrap", ["{}", '{{"time": "2026-01-31T11:58:00Z", "log": {}}}'])
def test_the_search_finds_what_reading_every_line_finds(
    wrap: str, asked: TimeRange | None, every_line: Callable[..., None]
) -> None:
    @settings(deadline=None)
    @given(LINES)
    def check(lines: list[str]) -> None:
        rows = [wrap.format(json.dumps(line) if "log" in wrap else line) for line in lines]
        content = "\n".join(rows).encode("utf-8", "surrogatepass")
        every_line(True)
        expected = read(content, asked)
        for head in (0, 500):
            every_line(False, head)
            found = read(content, asked)
            for what in ("events", "readings", "series", "distributions"):
                assert getattr(found, what, ()) == getattr(expected, what, ())
        assert (found and found.looked) == (expected and expected.looked)

    check()


@given(st.lists(st.binary(max_size=80) | st.sampled_from([line.encode() for line in TELLING]), max_size=40))
def test_each_line_with_a_needle_is_found_once_and_no_other(lines: list[bytes]) -> None:
    block = b"\n".join(line.replace(b"\n", b"") for line in lines)
    wanted = re.compile(b"|".join(CANDIDATE.needles))
    expected, start = [], 0
    for line in block.split(b"\n"):
        if wanted.search(line):
            expected.append((start, start + len(line)))
        start += len(line) + 1
    assert list(CANDIDATE.lines(block)) == expected


@pytest.mark.parametrize("line", TELLING)
def test_needles_are_found_in_any_encoding_of_the_rest(line: str) -> None:
    assert CANDIDATE.search(b"\xff\xfe" + line.encode() + b"\x80")


@pytest.mark.parametrize("size", [1, 7, 64, 1 << 20])
@given(content=st.binary(max_size=400) | st.lists(st.binary(max_size=20)).map(b"\n".join))
def test_blocks_are_the_content_in_whole_lines(size: int, content: bytes) -> None:
    content = (
        content.replace(b"\0", b"").removeprefix(b"\xef\xbb\xbf").removeprefix(b"\xff\xfe").removeprefix(b"\xfe\xff")
    )
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(log_blocks, "BLOCK", size)
        found = list(log_blocks.blocks(content))
    assert b"".join(found) == content
    assert all(block.endswith(b"\n") for block in found[:-1])


def test_of_a_line_without_an_end_the_beginning_is_kept() -> None:
    content = b"a" * (5 << 20) + b"\nb\n"
    found = b"".join(log_blocks.blocks(content))
    assert found == b"a" * log_blocks.LONGEST_LINE + b"\nb\n"


def test_a_long_file_is_read_where_it_is(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    with path.open("w") as file:
        for number in range(200_000):
            file.write(f"INFO 01-31 11:{number // 4000:02d}:00 [a.py:1] step {number} of many\n")
        file.write("ERROR 01-31 11:59:00 [a.py:1] CUDA error: unknown error\n")
    (artifact,) = logs.READER.collect(CollectRequest(logs=(path,)), SystemClock()).artifacts
    assert artifact.content == path
    (event,) = logs.READER.parse([artifact]).events
    assert event.origin.place == "line 200001"


UNITS = [
    b"cuda ",
    b"config",
    b"config " * 3 + b"a" * 90,
    b"NVRM",
    b"deploying ",
    b"a",
    b"\n",
    b"[1.0] ",
    b"kill process ",
]


@pytest.mark.parametrize("unit", UNITS)
def test_the_search_takes_bounded_time(unit: bytes) -> None:
    block = unit * ((1 << 20) // len(unit))
    began = time.process_time()
    with suppress(SourceError):
        read(block)
    assert time.process_time() - began < 5


def test_of_very_many_lines_of_levels_some_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_reading, "MANY", 100)
    monkeypatch.setattr(candidates, "_STEP", 2000)
    monkeypatch.setattr(log_blocks, "BLOCK", 1 << 14)
    monkeypatch.setattr(formats, "HEAD", 1 << 14)
    rows = [
        f"[2026-01-31 11:{number // 60 % 60:02d}:{number % 60:02d} TP0] Decode batch. #running-req: {number % 7}, "
        f"#token: 5, token usage: 0.01, gen throughput (token/s): 7.0, #queue-req: {number // 60}"
        for number in range(3000)
    ]
    rows[2900] = "[2026-01-31 11:48:20 TP0] CUDA error: unknown error"
    found = read("\n".join(rows).encode())
    assert found is not None
    (event,) = (one for one in found.events if one.signal == CUDA_ERROR)  # the queue's onset is another
    assert event.origin.place == "line 2901"
    (queue,) = (one for one in found.series if one.signal == "queue.depth")
    assert 50 <= len(queue.values) <= 1000
    assert queue.values[-1] == 49
    assert list(queue.times) == sorted(queue.times)


@given(st.lists(st.sampled_from([b"a", b"Decode batch 1", b"CUDA error", b"Decode batch CUDA", b""]), max_size=60))
def test_thinning_leaves_out_lines_of_levels_only(lines: list[bytes]) -> None:
    block = b"\n".join(lines)
    every = list(CANDIDATE.lines(block))
    found = list(CANDIDATE.thinned(block))
    assert found == sorted(found)
    assert set(found) <= set(every)
    assert all(b"CUDA" not in block[start:end] for start, end in set(every) - set(found))
