"""Databases of nvprof: read as a trace; where a call has an unknown number, nothing is said of calls."""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latdoctor.collectors.nsight import nvprof
from latdoctor.collectors.torch_trace import event_names
from latdoctor.errors import SourceError
from latdoctor.evidence.model import Evidence
from tests.collectors.nsight.synthetic_exports import parsed
from tests.collectors.seen import hidden, readings, values

SCHEMA = """
CREATE TABLE StringTable (_id_ INTEGER PRIMARY KEY, value TEXT);
CREATE TABLE CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL (_id_ INTEGER PRIMARY KEY, start INT, end INT, deviceId INT,
    streamId INT, correlationId INT, name INT);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (_id_ INTEGER PRIMARY KEY, cbid INT, start INT, end INT, processId INT,
    threadId INT, correlationId INT, returnValue INT);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (_id_ INTEGER PRIMARY KEY, copyKind INT, srcKind INT, dstKind INT, bytes INT,
    start INT, end INT, deviceId INT);
INSERT INTO StringTable VALUES (1, 'sgemm');
"""
LAUNCH, MALLOC, MEMCPY = 211, 20, 41
MS = 1_000_000  # ns


def made(path: Path, calls: tuple[int, ...] = (), kernels: str = "CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL") -> Path:
    """Forty launched kernels, two copies and `calls`."""
    with sqlite3.connect(path) as database:
        database.executescript(SCHEMA.replace("CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL", kernels))
        for at in range(40):
            call = (LAUNCH, at * MS, at * MS + 5000, at + 1)
            database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (NULL, ?, ?, ?, 7, 7, ?, 0)", call)
            row = (at * MS + 10_000, at * MS + 10_000 + MS // 2, at + 1)
            database.execute(f"INSERT INTO {kernels} VALUES (NULL, ?, ?, 0, 7, ?, 1)", row)  # noqa: S608
        for at, number in enumerate(calls):
            call = (number, at * MS + 700_000, at * MS + 710_000, 100 + at)
            database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (NULL, ?, ?, ?, 7, 7, ?, 0)", call)
        for source, size in ((1, 3000), (2, 1000)):  # pageable, pinned
            copy = (source, size, 600_000 + size, 650_000 + size)
            database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (NULL, 1, ?, 3, ?, ?, ?, 0)", copy)
    database.close()
    return path


@pytest.mark.parametrize("kernels", ["CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL", "CUPTI_ACTIVITY_KIND_KERNEL"])
def test_a_database_of_nvprof_is_read_as_a_trace(kernels: str, tmp_path: Path) -> None:
    found = parsed(made(tmp_path / "a.nvvp", (MALLOC, MEMCPY), kernels))
    seen = values(found)
    assert seen["trace.kernels"] == seen["launch.count"] == 40
    assert seen["gpu.busy_ratio"] == pytest.approx(20 / 39.5, rel=0.01)
    assert seen["alloc.device_calls"] == 1
    assert (seen["copy.bytes"], seen["copy.pageable_share"]) == (4000, 0.75)
    assert seen["launch.delay.median"] == pytest.approx(10e-6, rel=0.011)
    assert readings(found)["launch.count"].origin.place == "40 cudaLaunchKernel"
    assert not seen.keys() & hidden(found)


def test_failed_calls_are_evidence(tmp_path: Path) -> None:
    path = made(tmp_path / "a.nvvp", (MALLOC,))
    with sqlite3.connect(path) as database:
        database.execute("UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET returnValue = 2 WHERE cbid = 20")
    database.close()
    found = parsed(path)
    assert values(found)["cuda.error_calls"] == 1
    [failed] = found.events
    assert failed.text.startswith("cudaMalloc returned 2")


def test_an_unknown_number_hides_all_that_calls_would_tell(tmp_path: Path) -> None:
    found = parsed(made(tmp_path / "a.nvvp", (99_999,)))
    assert values(found)["trace.kernels"] == 40
    assert {"launch.count", "alloc.device_calls", "alloc.device_rate", "sync.time_share"} <= hidden(found)
    assert any("some of which are not known" in gap.reason and "nvprof --csv" in gap.next_step for gap in found.gaps)


def test_the_numbers_are_those_that_real_traces_tell() -> None:
    """As Kineto, which asks the same library, writes them beside the names."""
    told = {1: "cudaDriverGetVersion", 15: "cudaFuncGetAttributes", 20: "cudaMalloc", 22: "cudaFree"}
    told |= {27: "cudaHostAlloc", 28: "cudaHostGetDevicePointer", 41: "cudaMemcpyAsync", 51: "cudaMemsetAsync"}
    told |= {53: "cudaGetSymbolAddress", 131: "cudaStreamSynchronize", 135: "cudaEventRecord", 138: "cudaEventQuery"}
    told |= {147: "cudaStreamWaitEvent", 165: "cudaDeviceSynchronize", 211: "cudaLaunchKernel"}
    assert {number: nvprof.CALL_NAMES[number] for number in told} == told
    assert {nvprof.CALL_NAMES[n] for n in (126, 131, 137, 165)} == {
        name
        for name in nvprof.CALL_NAMES.values()
        if event_names.kind_of_call(name) == event_names.CallKind.SYNCHRONISE
    }


def test_a_database_without_activity_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.nvvp"
    with sqlite3.connect(path) as database:
        database.executescript(SCHEMA)
    database.close()
    with pytest.raises(SourceError, match="no CUDA activity"):
        parsed(path)


ANYTHING = st.one_of(
    st.none(), st.integers(-(2**63), 2**63 - 1), st.floats(), st.text(max_size=5), st.binary(max_size=5)
)


@given(
    st.lists(st.tuples(*[ANYTHING] * 6), max_size=6),
    st.lists(st.tuples(*[ANYTHING] * 7), max_size=6),
    st.lists(st.tuples(*[ANYTHING] * 7), max_size=6),
)
def test_any_values_give_a_result_or_an_error(
    kernels: list[tuple[object, ...]], calls: list[tuple[object, ...]], copies: list[tuple[object, ...]]
) -> None:
    database = sqlite3.connect(":memory:")
    database.executescript(SCHEMA)
    for table, rows in (("CONCURRENT_KERNEL", kernels), ("RUNTIME", calls), ("MEMCPY", copies)):
        for row in rows:
            marks = ", ".join("?" * len(row))
            database.execute(f"INSERT INTO CUPTI_ACTIVITY_KIND_{table} VALUES (NULL, {marks})", row)  # noqa: S608
    content = database.serialize()
    database.close()
    with suppress(SourceError):
        assert isinstance(parsed(content), Evidence)
