"""A trace read in two halves, and the ranks of a folder side by side: the same as one after the other."""

from __future__ import annotations

import gzip
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from latdoctor.collectors.base import CollectRequest, progress_listener
from latdoctor.collectors.torch_trace import COLLECTOR, parallel
from latdoctor.collectors.torch_trace import read_traces as reading
from latdoctor.collectors.torch_trace.json_stream import KinetoReader
from latdoctor.collectors.torch_trace.parallel import ChildProcess
from latdoctor.errors import SourceError
from latdoctor.evidence.model import Evidence
from tests.collectors.torch_trace.synthetic_traces import (
    artifact,
    call,
    copy,
    document,
    event,
    kernel,
    launched,
    step,
    values,
)

RICH = [
    *launched(60, every=90.0),
    *[call("cudaMalloc", at * 100.0 + 40.0, 30.0, returnValue=at % 3) for at in range(0, 100, 5)],
    copy("Memcpy HtoD (Pinned -> Device)", 300.0, 40.0, 4000),
    *[event("cpu_op", f"aten::op{at % 7}", at * 50.0, 30.0, **{"External id": at}) for at in range(80)],
    *[kernel(9000.0 + at * 50.0, 20.0, device=at % 3, **{"External id": at}) for at in range(80)],
    copy("Memcpy DtoH (Device -> Pageable)", 9500.0, 40.0, 500),
    *[step(at, 1000.0 * at, 1000.0) for at in range(8)],
    call("cudaFree", 12_000.0, 200_000.0),
]


class Clock:
    def now(self) -> float:
        return 1.0

    def sleep(self, seconds: float) -> None:
        raise AssertionError("nothing to wait for")


@pytest.fixture
def processors(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Two processors, and every file counts as large."""
    monkeypatch.setattr(parallel, "LARGE", 1)
    monkeypatch.setattr(parallel.likely_border, "__kwdefaults__", {"large": 1, "share": 0.5})
    for module in (parallel, reading):
        monkeypatch.setattr(module, "processors", lambda: 2)
    return None


def put(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def alone(path: Path) -> Evidence:
    return reading.read_trace(artifact(path), halves=False)


def both(path: Path) -> Evidence:
    return reading.read_trace(artifact(path))


def test_two_halves_give_what_one_reader_gives(tmp_path: Path, processors: None) -> None:
    path = put(tmp_path / "trace.json", document(RICH))
    assert both(path) == alone(path)


@pytest.mark.parametrize("layout", [{}, {"indent": 1}, {"separators": (",", ":")}, {"separators": (" ,\r\n", ": ")}])
def test_the_border_guessed_is_proven_in_every_usual_layout(
    layout: dict[str, object], tmp_path: Path, processors: None
) -> None:
    path = put(tmp_path / "trace.json", json.dumps({"traceEvents": RICH}, **layout).encode())
    reader = KinetoReader(path, "made", stop=parallel.likely_border(path))
    before = sum(len(batch) for batch in reader.batches())
    assert reader.stopped
    assert 0.4 * len(RICH) < before < 0.6 * len(RICH)
    assert both(path) == alone(path)


@pytest.mark.parametrize("share", [at / 20 for at in range(20)])
def test_a_border_is_never_taken_on_trust(tmp_path: Path, share: float) -> None:
    """Names that hold what looks like borders, and nested lists of what looks like events."""
    lures = [kernel(at * 10.0, 5.0, note='}, {"ph": "X"}', deep=[{"ph": "X"}, {"ph": "i"}]) for at in range(40)]
    path = put(tmp_path / "trace.json", document(lures))
    start = parallel.likely_border(path, large=1, share=share)
    if start is None:
        return
    reader = KinetoReader(path, "made", stop=start)
    first = [one for batch in reader.batches() for one in batch]
    if reader.stopped:
        first += [one for batch in KinetoReader(path, "made", start=start).batches() for one in batch]
    assert first == [one for batch in KinetoReader(path, "made").batches() for one in batch]


def test_every_border_between_events_is_proven_and_no_other_place(tmp_path: Path) -> None:
    text = document(launched(6))
    path = put(tmp_path / "trace.json", text)
    whole = [one for batch in KinetoReader(path, "made").batches() for one in batch]
    proven = 0
    for stop in range(1, len(text)):
        reader = KinetoReader(path, "made", stop=stop, piece=100)
        first = [one for batch in reader.batches() for one in batch]
        proven += reader.stopped
        rest = KinetoReader(path, "made", start=stop, piece=100) if reader.stopped else None
        assert first + [one for batch in (rest.batches() if rest else ()) for one in batch] == whole
    assert proven == len(whole) - 1


def test_a_second_half_that_fails_is_read_by_the_first(
    tmp_path: Path, processors: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = put(tmp_path / "trace.json", document(RICH))
    expected = alone(path)
    monkeypatch.setattr(parallel, "_read", lambda *given: os._exit(9))
    assert both(path) == expected


def test_damage_in_the_second_half_is_told_as_if_one_had_read_it(tmp_path: Path, processors: None) -> None:
    text = document(RICH)
    damaged = put(tmp_path / "damaged.json", text.replace(b'"dur": 200000.0', b'"dur": "long"'))
    assert both(damaged) == alone(damaged)
    assert any("1 of" in gap.reason for gap in both(damaged).gaps)
    cut = put(tmp_path / "cut.json", text[:-200])
    reasons = []
    for read in (both, alone):
        with pytest.raises(SourceError, match="cut off") as caught:
            read(cut)
        reasons.append(str(caught.value))
    assert reasons[0] == reasons[1]


@pytest.mark.parametrize("content", [gzip.compress(document(RICH)), b"", b"{}", b"}," * 50])
def test_what_cannot_be_halved_is_read_whole(content: bytes, tmp_path: Path, processors: None) -> None:
    path = put(tmp_path / "trace.json", content)
    assert parallel.likely_border(path) is None


def test_small_files_and_processes_with_threads_are_read_by_one(tmp_path: Path) -> None:
    assert parallel.likely_border(put(tmp_path / "trace.json", document(RICH))) is None
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    try:
        assert parallel.processors() == 1
    finally:
        stop.set()
        thread.join()


def test_a_folder_of_ranks_gives_a_subject_for_each(tmp_path: Path, processors: None) -> None:
    for rank in range(5):
        put(tmp_path / f"rank-{rank}.json", document(launched(20 + rank)))
    put(tmp_path / "rank-5.json", b'{"traceEvents": [')
    told: list[str] = []
    found = COLLECTOR.collect(CollectRequest(traces=(tmp_path,)), Clock())
    with progress_listener(told.append):
        seen = COLLECTOR.parse(found.artifacts)
    kernels = {one.subject: one.value for one in seen.readings if one.signal == "trace.kernels"}
    assert kernels == {f"trace/rank-{rank}": 20 + rank for rank in range(5)}
    [gap] = [gap for gap in seen.gaps if gap.subject == "trace/rank-5" and "trace.kernels" in gap.signals]
    assert "cut off" in gap.reason
    assert told[-1] == "traces: 6 of 6 read"
    assert not [gap for gap in seen.gaps if gap.subject != "trace/rank-5" and "trace.kernels" in gap.signals]


def test_a_folder_is_read_without_further_processes_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for rank in range(3):
        put(tmp_path / f"rank-{rank}.json", document(launched(20 + rank)))
    found = COLLECTOR.collect(CollectRequest(traces=(tmp_path,)), Clock()).artifacts
    several = COLLECTOR.parse(found)
    monkeypatch.setattr(reading, "processors", lambda: 1)
    assert COLLECTOR.parse(found) == several
    monkeypatch.setattr(reading, "processors", lambda: 2)
    monkeypatch.setattr(reading, "ChildProcess", lambda work: (_ for _ in ()).throw(OSError(11, "no more processes")))
    assert COLLECTOR.parse(found) == several


def test_a_child_that_is_killed_gives_no_answer_and_none_is_left_behind() -> None:
    with ChildProcess(lambda: os.kill(os.getpid(), 9) or b"") as child:
        assert child.answer() is None
    with ChildProcess(lambda: b"done") as child:
        assert child.answer() == b"done"
    with ChildProcess(lambda: threading.Event().wait() and b"") as child:  # stopped by the end of the context
        pid = child._pid
    with pytest.raises(ChildProcessError):
        os.waitpid(pid, 0)


def test_values_are_those_of_the_whole(tmp_path: Path, processors: None) -> None:
    assert values(both(put(tmp_path / "trace.json", document(RICH))))["alloc.device_calls"] == 20
