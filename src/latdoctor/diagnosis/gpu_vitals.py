"""Vital signs of GPUs and of what connects them, and reports that a GPU cannot be reached."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from latdoctor.conditions.evaluator import show
from latdoctor.diagnosis.result import Vital
from latdoctor.evidence.gpu_access import ACCESS_ERROR, AccessFailure
from latdoctor.evidence.model import Event, Evidence, kind_of

DIAGNOSTIC = "gpu.diagnostic_failed"
# The gravest first. Nothing follows from the absence of one.
EVENTS = (
    ACCESS_ERROR,
    "log.fabric_error",
    DIAGNOSTIC,
    "log.collective_timeout",
    "log.collective_error",
    "log.pcie_error",
    "log.no_gpu_found",
    "gpu.vgpu_unlicensed",
)
# What is shown only where its share of a maximum is not known.
_WITHOUT = {
    "gpu.power": "gpu.power_ratio",
    "gpu.sm_clock": "gpu.sm_clock_ratio",
    "gpu.memory_used": "gpu.memory_used_ratio",
}
_FURTHER = (
    *_WITHOUT,
    "gpu.memory_temperature",
    "gpu.memory_utilization",
    "gpu.sm_active",
    "gpu.tensor_active",
    "gpu.dram_active",
    "offload.layer_share",
)
_MEMORY, _MEMORY_LIMIT = "gpu.memory_temperature", "gpu.memory_temperature_max"
# What cuts the clocks, and damage of the memory: said where there is any.
_TROUBLES = (
    "gpu.throttle.thermal",
    "gpu.throttle.sw_power_cap",
    "gpu.throttle.hw_power_brake",
    "gpu.throttle.hw_slowdown",
    "gpu.ecc.uncorrectable",
    "gpu.row_remap.pending",
    "gpu.row_remap.failed",
    "gpu.retired.pending",
    "gpu.retired.double_bit",
)
# What any program that looks for a GPU reports where there is none.
_WITHOUT_GPU = frozenset({AccessFailure.NVML_FAILED, AccessFailure.LIBRARY_NOT_FOUND, AccessFailure.NO_DEVICES})
_TEXTS = ("gpu.name", "gpu.driver_version", "collective.network")
_SLOW_CHANNELS = "NET/Socket"


def gpu_events(evidence: Evidence) -> Iterator[Vital]:
    """How many reports there are, of failed access of each kind, and when the first of them was made."""
    no_gpu = _is_without_gpu(evidence)
    for signal in EVENTS:
        events = [
            one for one in evidence.events_by_signal.get(signal, ()) if not (no_gpu and _kind(one) in _WITHOUT_GPU)
        ]
        kinds = dict.fromkeys(_kind(one) for one in events)
        groups = {kind: {kind} for kind in kinds} if signal == ACCESS_ERROR else {", ".join(filter(None, kinds)): kinds}
        for part, members in groups.items() if events else ():
            own = [one for one in events if _kind(one) in members]
            times = [one.time for one in own if one.time is not None]
            yield Vital(signal, own[0].subject, float(len(own)), str(len(own)), part, min(times, default=None))


def _is_without_gpu(evidence: Evidence) -> bool:
    """Whether the server computes on processors, or the machine has no GPU: what then fails to find one is no fault."""
    known = evidence.readings_by_signal
    on_cpu = any(one.value == "cpu" for one in known.get("server.backend", ()))
    none = [one.value for one in known.get("host.accelerators", ())]
    return on_cpu or (bool(none) and not any(none))


def _kind(event: Event) -> str:
    """What an event reports; of a diagnostic also on which GPU and why."""
    kind = str(event.fields.get("kind", ""))
    if event.signal != DIAGNOSTIC:
        return kind
    gpu = f" on GPU {event.subject.partition('/')[2]}" if kind_of(event.subject) == "gpu" else ""
    reason = str(event.fields.get("reason", ""))
    return f"{kind}{gpu}{f': {reason}' if reason else ''}"


def gpu_troubles(evidence: Evidence) -> Iterator[Vital]:
    """The highest of each number that is 0 on a sound GPU."""
    said: set[str] = set()
    for signal in _TROUBLES:
        readings = evidence.readings_by_signal.get(signal, ())
        found = [(one.value, one.subject) for one in readings if not isinstance(one.value, str) and one.value > 0]
        explained = signal == "gpu.throttle.hw_slowdown" and said & {
            "gpu.throttle.thermal",
            "gpu.throttle.hw_power_brake",
        }
        if found and not explained:
            said.add(signal)
            value, subject = max(found)
            yield Vital(signal, subject, value, show(signal, value))
    if over := _over_limit(evidence):
        yield over


def _over_limit(evidence: Evidence) -> Vital | None:
    """The memory of a GPU that is hotter than it may be operated."""
    hottest = {one.subject: one.value for one in evidence.readings_by_signal.get(_MEMORY, ())}
    for one in evidence.readings_by_signal.get(_MEMORY_LIMIT, ()):
        now, limit = hottest.get(one.subject), one.value
        if not isinstance(now, str | None) and not isinstance(limit, str) and now >= limit:
            shown = f"{show(_MEMORY, now)}, its operating limit is {show(_MEMORY, limit)}"
            return Vital(_MEMORY_LIMIT, one.subject, now, shown)
    return None


def gpu_numbers(evidence: Evidence) -> Iterator[Vital]:
    """The highest of each number that is not shown as a share already, and what the GPUs and their network are."""
    known = evidence.readings_by_signal
    for signal in _FURTHER:
        if _WITHOUT.get(signal, "") in known or (signal == _MEMORY and _over_limit(evidence)):
            continue
        found = [(one.value, one.subject) for one in known.get(signal, ()) if not isinstance(one.value, str)]
        if found:
            value, subject = max(found)
            yield Vital(signal, subject, value, show(signal, value))
    for signal in _TEXTS:
        texts = Counter(str(one.value) for one in known.get(signal, ()))
        if texts:
            text, count = texts.most_common(1)[0]
            many = f"{count} x " if signal == "gpu.name" and count > 1 else ""
            yield Vital(signal, known[signal][0].subject, text, f"{many}{text}")
    for one in known.get("collective.channels", ()):
        if dict(one.labels).get("transport") == _SLOW_CHANNELS:
            yield Vital(one.signal, one.subject, one.value, show(one.signal, one.value))
