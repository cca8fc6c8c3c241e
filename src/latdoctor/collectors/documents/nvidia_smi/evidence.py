"""The states of GPUs in a text as evidence: the readings that NVML would give, series where there are times, and what
the driver could not read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from msgspec import structs

from latdoctor.collectors.documents.nvidia_smi.fields import FURTHER, PARTIAL, Fields, GpuState, device_of, sample_of
from latdoctor.collectors.documents.nvidia_smi.judged_samples import judged_samples
from latdoctor.collectors.documents.nvidia_smi.neighbours import foreign_processes
from latdoctor.collectors.documents.nvidia_smi.values import refusal
from latdoctor.collectors.documents.text_format import Section
from latdoctor.collectors.nvml import SIGNALS
from latdoctor.collectors.nvml.evidence import record_evidence
from latdoctor.collectors.nvml.readings import MEANS, QUANTITIES
from latdoctor.collectors.nvml.samples import (
    MAX_GPUS,
    SCHEMA_VERSION,
    GpuDevice,
    GpuProcess,
    GpuSample,
    Number,
    NvmlCode,
    NvmlRecord,
    Text,
    Unavailable,
)
from latdoctor.evidence.gpu_access import ACCESS_ERROR, AccessFailure
from latdoctor.evidence.model import AT_LEAST, Event, Evidence, Reading, Series, Value, Window

GPU_LOST, UNLICENSED, FOREIGN = "log.gpu_lost", "gpu.vgpu_unlicensed", "gpu.foreign_processes"
_OF_PROCESS: dict[str, Callable[[GpuProcess], float | None]] = {
    "gpu.process_memory": lambda process: process.memory,
    "gpu.process_utilization": lambda process: process.utilization,
    "gpu.process_memory_utilization": lambda process: process.memory_utilization,
}
PROVIDES = frozenset({*SIGNALS, *FURTHER, *_OF_PROCESS, ACCESS_ERROR, GPU_LOST, UNLICENSED})
_MEANS = frozenset(one.signal for one in QUANTITIES if one.how in MEANS)
_COUNTS = ("gpu.count", "gpu.count_expected")
MAX_STATES = 200_000
_MAX_PROCESSES = 64
_SERIES = {
    "gpu.utilization",
    "gpu.memory_used",
    "gpu.memory_used_ratio",
    "gpu.sm_clock",
    "gpu.sm_clock_ratio",
    "gpu.temperature",
    "gpu.temperature_margin",
    "gpu.power",
    "gpu.power_ratio",
    "gpu.throttle.thermal",
    "gpu.throttle.sw_power_cap",
    "gpu.throttle.hw_slowdown",
    "gpu.ecc.uncorrectable",
}
_FURTHER_SERIES = {"gpu.memory_utilization", "gpu.memory_temperature", "gpu.clock.memory", "gpu.pcie.rx_rate"}


@dataclass(frozen=True, slots=True)
class Machine:
    """What a text says of the machine. `expected`: how many GPUs it says that there are; None if it does not.

    `lists_all`: the text lists every GPU, so that those in it can be counted.
    """

    driver: Text
    cuda: Text
    expected: int | None = None
    lists_all: bool = True


def evidence_of(states: Sequence[GpuState], machine: Machine, section: Section) -> Evidence:
    """What `states` show, in the order of the text. Raises ValueError where there is none."""
    if not states:
        raise ValueError("it lists no GPU")
    by_gpu: dict[int, list[GpuState]] = {}
    for state in states[:MAX_STATES]:
        by_gpu.setdefault(state.index, []).append(state)
    if len(by_gpu) > MAX_GPUS:
        raise ValueError(f"it lists more than {MAX_GPUS} GPUs")
    timed = {index: _in_order(found, section.taken_at) for index, found in sorted(by_gpu.items())}
    devices = {index: device_of(index, _joined(found)) for index, found in by_gpu.items()}
    samples = {index: [sample_of(state, state.time or 0.0) for state in found] for index, found in timed.items()}
    record = NvmlRecord(SCHEMA_VERSION, machine.driver, machine.cuda, None, (), tuple(devices[n] for n in timed), ())
    judged = {index: judged_samples(found) for index, found in samples.items()}
    parts = [_corrected(_record_evidence(record, samples, judged, section), machine)]
    for index, found in timed.items():
        parts.append(_further(index, found, len(judged[index]), section))
        parts.append(_curves(index, devices[index], found, samples[index], section))
        parts += [_failures(index, found, section), _states(index, found, section)]
    whole = Evidence.merge(parts)
    return whole if any(state.time is not None for state in states) else _without_times(whole)


def _record_evidence(
    record: NvmlRecord,
    samples: Mapping[int, Sequence[GpuSample]],
    judged: Mapping[int, Sequence[GpuSample]],
    section: Section,
) -> Evidence:
    """What NVML would give of `samples`, with means over those that are `judged`."""

    def of(listed: Mapping[int, Sequence[GpuSample]]) -> Evidence:
        every = tuple(sample for found in listed.values() for sample in found)
        return record_evidence(structs.replace(record, samples=every), section.artifact)

    whole = of(samples)
    if judged == samples:
        return whole
    means = [one for one in of(judged).readings if one.signal in _MEANS]
    return structs.replace(whole, readings=(*(one for one in whole.readings if one.signal not in _MEANS), *means))


def _in_order(states: Iterable[GpuState], taken_at: float) -> list[GpuState]:
    """By their times; those of a text without times are all of the moment at which it was read."""
    found = [state if state.time is not None else _at(state, taken_at) for state in states]
    return sorted(found, key=lambda state: state.time or 0.0)


def _at(state: GpuState, time: float) -> GpuState:
    return GpuState(state.index, state.fields, time, state.processes)


def _joined(states: Sequence[GpuState]) -> Fields:
    """The fields of all states; the last value of each that has one."""
    found: dict[str, str] = {}
    for state in states:
        found.update({name: text for name, text in state.fields.items() if refusal(text) is None or name not in found})
    return found


def _corrected(found: Evidence, machine: Machine) -> Evidence:
    """The number of GPUs that the text itself names replaces the number that it lists."""
    if not machine.lists_all:
        return structs.replace(found, readings=tuple(one for one in found.readings if one.signal not in _COUNTS))
    if machine.expected is None:
        return found
    kept = tuple(one for one in found.readings if one.signal != "gpu.count_expected")
    origin = next(one.origin for one in found.readings if one.signal == "gpu.count")
    counted = Reading("gpu.count_expected", "node/local", float(machine.expected), origin)
    return Evidence(found.subjects, (*kept, counted), gaps=found.gaps)


def _further(index: int, states: Sequence[GpuState], judged: int, section: Section) -> Evidence:
    """What a sample of NVML does not have; means are over the last `judged` states."""
    subject, origin = f"gpu/{index}", section.origin(place=f"line {section.first_line}, GPU {index}")
    window = Window(states[0].time, states[-1].time)
    readings = []
    partial = {signal: read for signal, read in PARTIAL.items() if not _has_all_reasons(states)}
    for signal, read in {**FURTHER, **partial}.items():
        is_mean = "throttle" in signal or "utilization" in signal
        values = _numbers(read(state.fields) for state in (states[-judged:] if is_mean else states))
        if values:
            bound = AT_LEAST if signal == "gpu.retired.pending" and values[-1] > 0 else ""
            value = sum(values) / len(values) if is_mean else values[-1]
            value = max(values) if signal == "gpu.memory_temperature" else value
            readings.append(Reading(signal, subject, value, origin, window, bound=bound))
    processes = states[-1].processes
    foreign = None if isinstance(processes, Unavailable) else foreign_processes(processes)
    if foreign is not None:
        readings.append(Reading(FOREIGN, subject, float(foreign), origin, window))
    for process in () if isinstance(processes, Unavailable) else processes[:_MAX_PROCESSES]:
        labels = (("process", process.name or str(process.pid)),)
        for signal, of_process in _OF_PROCESS.items():
            if (share := of_process(process)) is not None:
                readings.append(Reading(signal, subject, share, origin, window, labels))
    return Evidence(readings=tuple(readings))


def _has_all_reasons(states: Sequence[GpuState]) -> bool:
    return any(not isinstance(sample_of(state, 0.0).clock_reasons, Unavailable) for state in states[:1])


def _numbers(values: Iterable[Number]) -> list[float]:
    return [value for value in values if not isinstance(value, Unavailable)]


def _curves(
    index: int, device: GpuDevice, states: Sequence[GpuState], samples: Sequence[GpuSample], section: Section
) -> Evidence:
    """The samples over time where the text has at least two moments."""
    times = [sample.time for sample in samples]
    if len(set(times)) < 2 or len(set(times)) < len(times):
        return Evidence()
    origin = section.origin(place=f"line {section.first_line}, GPU {index}")

    def curve(signal: str, values: Sequence[Number]) -> Iterator[Series]:
        known = [(time, value) for time, value in zip(times, values, strict=True) if not isinstance(value, Unavailable)]
        if len(known) >= 2:
            moments, numbers = zip(*known, strict=True)
            yield Series(signal, f"gpu/{index}", tuple(moments), tuple(numbers), origin)

    found: list[Series] = []
    for quantity in QUANTITIES:
        if quantity.signal in _SERIES:
            found += curve(quantity.signal, [quantity.read(device, sample) for sample in samples])
    reads: dict[str, Callable[[Fields], Number]] = {name: FURTHER[name] for name in _FURTHER_SERIES}
    for signal, read in reads.items():
        found += curve(signal, [read(state.fields) for state in states])
    return Evidence(series=tuple(found))


def _failures(index: int, states: Sequence[GpuState], section: Section) -> Evidence:
    """Fields that the driver could not read, once for each kind of failure."""
    events: dict[AccessFailure, Event] = {}
    for state in states:
        bad = {name: why for name, text in state.fields.items() if (why := refusal(text)) and why.status in _FAILED}
        kinds: dict[AccessFailure, list[str]] = {}
        for name, why in bad.items():
            kinds.setdefault(_FAILED[NvmlCode(why.status or NvmlCode.UNKNOWN)], []).append(name)
        for kind, names in kinds.items():
            fields: dict[str, float | str] = {"kind": kind, "fields": ", ".join(sorted(names)[:8])}
            where = section.origin(place=f"line {section.first_line}, GPU {index}")
            events.setdefault(kind, Event(ACCESS_ERROR, f"gpu/{index}", where, fields, state.time))
    if not events:
        return Evidence()
    lost = events.get(AccessFailure.GPU_LOST)
    if lost is None:
        return Evidence(events=tuple(events.values()))
    gone = Event(GPU_LOST, lost.subject, lost.origin, {}, lost.time, "GPU is lost")
    return Evidence(events=(*events.values(), gone))


def _states(index: int, states: Sequence[GpuState], section: Section) -> Evidence:
    """A fabric that is not set up (CUDA calls then fail with error 802), and a virtual GPU without a license."""
    last = states[-1]
    where = section.origin(place=f"line {section.first_line}, GPU {index}")
    events = []
    state, status = (last.fields.get(name, "").strip() for name in ("fabric.state", "fabric.status"))
    if state in _NOT_SET_UP or (status and refusal(status) is None and status not in _SET_UP):
        reason = f"fabric {state or status}" if state in _NOT_SET_UP else f"fabric {status}"
        fields: dict[str, Value] = {"kind": AccessFailure.NOT_READY, "reason": reason}
        events.append(Event(ACCESS_ERROR, f"gpu/{index}", where, fields, last.time))
    licence = last.fields.get("license_status", "").strip()
    if licence.lower().startswith("unlicensed"):
        events.append(Event(UNLICENSED, f"gpu/{index}", where, {"state": licence}, last.time))
    return Evidence(events=tuple(events))


_NOT_SET_UP = ("In Progress", "Not Started")
_SET_UP = ("Success", "NVML_SUCCESS", "0")
_FAILED = {
    NvmlCode.UNKNOWN: AccessFailure.UNREADABLE_FIELD,
    NvmlCode.GPU_IS_LOST: AccessFailure.GPU_LOST,
    NvmlCode.RESET_REQUIRED: AccessFailure.RESET_REQUIRED,
}


def _without_times(found: Evidence) -> Evidence:
    """The moment at which a text was read is not that of its values."""
    readings = tuple(structs.replace(one, window=Window()) for one in found.readings)
    return structs.replace(
        found, readings=readings, events=tuple(structs.replace(one, time=None) for one in found.events)
    )
