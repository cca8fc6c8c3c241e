"""Records of NVML samples that nobody wrote down so: damaged ones are refused, odd ones are read without harm."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from latdoctor.collectors.base import CollectRequest
from latdoctor.collectors.nvml import COLLECTOR, GPU_SIGNALS
from latdoctor.collectors.nvml import collector as nvml
from latdoctor.collectors.nvml.samples import LOST, GpuDevice, GpuProcess, GpuSample, NvLink, NvmlRecord, Unavailable
from latdoctor.errors import SourceError
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import to_json


def artifact(content: bytes) -> Artifact:
    return Artifact("nvml.json", "nvml", "nvml", "test", 0.0, content)


refused = st.one_of(
    st.builds(Unavailable, st.sampled_from(["not supported", "function not found", "gpu is lost", "unknown error"])),
    st.builds(Unavailable, st.just("text of NVML"), st.sampled_from([3, 13, *LOST, 999])),
)
numbers = st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.floats(0, 100), refused)
wholes = st.one_of(st.integers(0, 2**63), refused)
texts = st.one_of(st.text(max_size=20), refused)
processes = st.lists(st.builds(GpuProcess, st.integers(0, 99), st.none() | st.floats(0, 1e9)), max_size=3).map(tuple)
links = st.lists(st.builds(NvLink, st.integers(0, 3), st.lists(numbers, max_size=2).map(tuple)), max_size=3).map(tuple)
_SPECIAL = {
    "clock_reasons": wholes,
    "processes": processes | refused,
    "links": links | refused | st.none(),
    "name": texts,
    "uuid": texts,
    "pci": texts,
    "mig": wholes,
    "refused": st.just(""),
    "refused_code": st.none(),
}


def fields(kind: type[msgspec.Struct], skip: frozenset[str]) -> dict[str, st.SearchStrategy[object]]:
    return {name: _SPECIAL.get(name, numbers) for name in kind.__struct_fields__ if name not in skip}


@st.composite
def records(draw: st.DrawFn) -> NvmlRecord:
    count = draw(st.integers(0, 2))
    skip = frozenset({"index", "time"})
    devices = [draw(st.builds(GpuDevice, index=st.just(index), **fields(GpuDevice, skip))) for index in range(count)]
    times = sorted(draw(st.lists(st.floats(0, 1e9), min_size=1, max_size=4)))
    samples = [
        draw(st.builds(GpuSample, time=st.just(time), index=st.just(index), **fields(GpuSample, skip)))
        for time in times
        for index in range(count)
    ]
    pid = draw(st.none() | st.integers(0, 99))
    return NvmlRecord(1, draw(texts), draw(texts), pid, (pid,) if pid else (), tuple(devices), tuple(samples))


@given(records())
def test_every_signal_is_either_read_or_hidden(record: NvmlRecord):
    evidence = nvml.READER.parse([artifact(to_json(record))])
    for device in record.devices:
        subject = f"gpu/{device.index}"
        read = [reading.signal for reading in evidence.readings if reading.subject == subject]
        hidden = {signal for gap in evidence.gaps if gap.subject == subject for signal in gap.signals}
        assert len(read) == len(set(read))
        # Foreign processes are spoken of only where a process is watched and uses the GPU.
        assert set(GPU_SIGNALS) - set(read) - hidden <= {"gpu.foreign_processes"}
    for reading in evidence.readings:
        assert isinstance(reading.value, str) or math.isfinite(reading.value)
        if ".throttle." in reading.signal:
            assert 0 <= float(reading.value) <= 1


@given(records())
def test_reading_a_record_twice_gives_the_same(record: NvmlRecord):
    written = artifact(to_json(record))
    assert nvml.READER.parse([written]) == nvml.READER.parse([written])


_GOOD = to_json(NvmlRecord(1, "1", "1", None, (), (), ()))


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "not a record"),
        (b"[]", "not a record"),
        (_GOOD[:-1], "not a record"),
        (_GOOD.replace(b'"schema_version":1', b'"schema_version":2'), "version 2"),
        (_GOOD.replace(b'"samples":[]', b'"samples":[{"time":1}]'), "not a record"),
    ],
)
def test_damaged_records_are_refused(content: bytes, what: str):
    with pytest.raises(SourceError, match=what):
        nvml.READER.parse([artifact(content)])


@given(records(), st.sampled_from(["order", "unknown", "twice"]))
def test_records_that_contradict_themselves_are_refused(record: NvmlRecord, how: str):
    samples, devices = list(record.samples), list(record.devices)
    if not devices:
        return
    if how == "order":
        samples.append(msgspec.structs.replace(samples[0], time=samples[-1].time - 1))
    elif how == "unknown":
        samples.append(msgspec.structs.replace(samples[-1], index=77))
    else:
        devices.append(devices[0])
    broken = msgspec.structs.replace(record, samples=tuple(samples), devices=tuple(devices))
    with pytest.raises(SourceError):
        nvml.READER.parse([artifact(to_json(broken))])


def test_is_requested():
    assert COLLECTOR.is_requested(CollectRequest(nvml=True))
    assert not COLLECTOR.is_requested(CollectRequest(host=True))
