"""Comparison of TensorRT engines with each other and with the GPU of this machine.

Two engines are compared unless they differ in GPU or input shape, as far as both report them. The time is that of their
layers if both have a profile, otherwise the median of their runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from latdoctor.evidence.model import Evidence, Gap, Origin, Reading
from latdoctor.gap_code import GapCode
from latdoctor.units import format_value

_OVER_WIDER, _OVER_FASTEST = "engine.time_over_wider", "engine.time_over_fastest"
_TIMES = ("engine.layer_time", "engine.compute.median")
_FOREIGN = "engine.foreign_device"
DERIVED = (_OVER_WIDER, _OVER_FASTEST, _FOREIGN)
EngineReadings = Mapping[str, Reading]


def compare_engines(evidence: Evidence) -> Evidence:
    """Derive the comparisons of every engine with the others, and whether it was built for a known GPU."""
    found = _engines(evidence)
    pieces = [*_compared(found), *_foreign(found, evidence)]
    reported = {(reading.signal, reading.subject) for reading in evidence.readings}
    return Evidence(
        readings=tuple(p for p in pieces if isinstance(p, Reading) and (p.signal, p.subject) not in reported),
        gaps=tuple(p for p in pieces if isinstance(p, Gap) and p not in evidence.gaps),
    )


def _engines(evidence: Evidence) -> Mapping[str, EngineReadings]:
    found: dict[str, dict[str, Reading]] = {}
    for reading in evidence.readings:
        if reading.subject.startswith("engine/"):
            found.setdefault(reading.subject, {})[reading.signal] = reading
    return found


def _compared(found: Mapping[str, EngineReadings]) -> Iterator[Reading | Gap]:
    for subject, engine in found.items():
        others = [(name, other) for name, other in found.items() if name != subject]
        if not others:
            continue
        fitting = [(name, other) for name, other in others if not _differ(engine, other)]
        if not fitting:
            reason = f"cannot be compared with {others[0][0]}: {_differ(engine, others[0][1])}"
            yield Gap(
                "derived",
                reason,
                (_OVER_WIDER, _OVER_FASTEST),
                subject,
                "pass engines of one GPU and one input shape",
                code=GapCode.INCONSISTENT,
            )
            continue
        wider = [(name, other) for name, other in fitting if _bits(other) > _bits(engine) > 0]
        yield from _ratio(_OVER_FASTEST, subject, engine, fitting)
        yield from _ratio(_OVER_WIDER, subject, engine, wider)


def _ratio(
    signal: str, subject: str, engine: EngineReadings, others: list[tuple[str, EngineReadings]]
) -> Iterator[Reading]:
    """Ratio to the fastest of `others`, by the first kind of time that both have."""
    for kind in _TIMES:
        timed = [(_number(other, kind), name) for name, other in others if _number(other, kind) > 0]
        own = _number(engine, kind)
        if own > 0 and timed:
            best, name = min(timed)
            place = f"{kind} {format_value(own, 'time')} over {format_value(best, 'time')} of {name}"
            yield Reading(signal, subject, own / best, Origin(engine[kind].origin.artifact, place))
            return


def _differ(one: EngineReadings, other: EngineReadings) -> str:
    """Say why two engines cannot be compared; empty if they can."""
    for signal, what in (("engine.device", "GPUs"), ("engine.input", "input shapes")):
        reported = [engine[signal].value for engine in (one, other) if signal in engine]
        if len(reported) == 2 and reported[0] != reported[1]:
            return f"they have different {what} ({reported[0]}, {reported[1]})"
    if not any(_number(one, kind) > 0 and _number(other, kind) > 0 for kind in _TIMES):
        return "no time is reported for both"
    return ""


def _foreign(found: Mapping[str, EngineReadings], evidence: Evidence) -> Iterator[Reading]:
    gpu_names = sorted({str(reading.value) for reading in evidence.readings_by_signal.get("gpu.name", ())})
    if not gpu_names:
        return
    for subject, engine in found.items():
        if "engine.device" in engine:
            own = engine["engine.device"]
            fits = _plain(str(own.value)) in {_plain(name) for name in gpu_names}
            place = f"built for {own.value}; found: {', '.join(gpu_names[:4])}"
            yield Reading(_FOREIGN, subject, float(not fits), Origin(own.origin.artifact, place))


def _plain(name: str) -> str:
    return " ".join(name.lower().replace("nvidia", "").split())


def _bits(engine: EngineReadings) -> float:
    return _number(engine, "engine.bits")


def _number(engine: EngineReadings, signal: str) -> float:
    """The numeric value of a signal; 0 if unknown."""
    found = engine.get(signal)
    return 0.0 if found is None or isinstance(found.value, str) else found.value
