"""What the files of an engine show, as evidence, and what is missing to show the rest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from latdoctor.collectors.tensorrt import NAME, engine_figures
from latdoctor.collectors.tensorrt.engine_figures import EngineFiles, LayerShare, SourcedValue
from latdoctor.collectors.tensorrt.performance_summary import COMPUTE, LATENCY, MAX, MEAN, MEDIAN, P99
from latdoctor.evidence.model import AT_LEAST, Evidence, Gap, Origin, Reading, Subject, Value
from latdoctor.gap_code import GapCode
from latdoctor.units import format_value

_COUNTS = tuple(f"engine.{name}.count" for name in (*engine_figures.KINDS, "fallback"))
_SHARES = tuple(f"engine.{name}.time_share" for name in (*engine_figures.KINDS, "fallback"))
_LAYERS = (
    "engine.layers",
    "engine.bits",
    "engine.input",
    "engine.quantising.layer_share",
    *_COUNTS,
)
_RUNS = (
    "engine.compute.median",
    "engine.enqueue.median",
    "engine.enqueue_ratio",
    "engine.copy_ratio",
)
_BUILD = ("engine.rejected", "engine.unconstrained", "engine.reformats_needed")
_SHAPE, _FOREIGN = "engine.shape_refused", "engine.foreign_device"
_TIME = "engine.layer_time"

_EXPORT = "trtexec --loadEngine=FILE --exportLayerInfo=FILE.graph.json --exportProfile=FILE.profile.json"
_DETAILED = "build with --profilingVerbosity=detailed, then " + _EXPORT
_TIMED = "trtexec --loadEngine=FILE --exportTimes=FILE.timing.json"
_DIRECT = "build with --directIO --verbose, and keep the log of the build"
_VERBOSE = "keep the log of the build: trtexec --verbose … > FILE.build.log"


@dataclass(frozen=True, slots=True)
class _Writer:
    subject: str

    def reading(self, signal: str, value: Value, artifact: str, place: str, note: str = "", bound: str = "") -> Reading:
        return Reading(signal, self.subject, value, Origin(artifact, place), note=note, bound=bound)

    def sourced(self, signal: str, found: SourcedValue, note: str = "") -> Reading:
        return self.reading(signal, found.value, found.artifact, found.place, note)

    def gap(self, reason: str, code: GapCode, signals: tuple[str, ...], next_step: str) -> Gap:
        return Gap(NAME, reason, signals, self.subject, next_step, code=code)


def evidence(files: EngineFiles, subject: str) -> Evidence:
    """What the files say of `subject` (`engine/NAME`)."""
    writer = _Writer(subject)
    pieces = [
        *_layers(files, writer),
        *_runs(files, writer),
        *_summary(files, writer),
        *_facts(files, writer),
        *_log(files, writer),
    ]
    return Evidence(
        (Subject(subject),),
        tuple(piece for piece in pieces if isinstance(piece, Reading)),
        gaps=tuple(piece for piece in pieces if isinstance(piece, Gap)),
    )


def _layers(files: EngineFiles, writer: _Writer) -> Iterator[Reading | Gap]:
    times, why_not = engine_figures.matched_times(files)
    if files.profile is not None:
        profile, artifact = files.profile
        whole = sum(time for _, time in profile.times)
        yield writer.reading(_TIME, whole, artifact, f"{len(profile.times)} layers")
    else:
        yield writer.gap("cannot tell: no profile of the layers' times was given", GapCode.ABSENT, (_TIME,), _EXPORT)
    if files.layers is None or files.layers[0].names_only:
        known = "the layer information holds names only" if files.layers else "no layer information was given"
        yield writer.gap(f"cannot tell: {known}", GapCode.ABSENT, (*_LAYERS, *_SHARES), _DETAILED)
        return
    found, artifact = files.layers
    count = len(found.listed)
    bits = engine_figures.narrowest(found.listed)
    yield writer.reading("engine.layers", float(count), artifact, "Layers")
    if size := engine_figures.first_input(files):
        yield writer.reading("engine.input", size, artifact, "Bindings")
    if bits is not None:
        yield writer.reading("engine.bits", float(bits), artifact, "inputs of convolutions and matrix products")
    shares = dict(engine_figures.shares(files, times))
    meant = engine_figures.narrow_was_meant(files, bits)
    if meant is None:
        lost = ("engine.fallback.count", "engine.fallback.time_share")
        yield writer.gap("cannot tell whether less than FP32 was meant: all is FP32", GapCode.AMBIGUOUS, lost, _VERBOSE)
    else:
        shares["fallback"] = shares["fp32"] if meant else LayerShare(0, None if times is None else 0.0, ())
    whole = sum(times) if times else 0.0
    if not any(layer.tactic for layer in found.listed):
        del shares["no_tensor_cores"]
        lost = ("engine.no_tensor_cores.count", "engine.no_tensor_cores.time_share")
        yield writer.gap("cannot tell: the layer information names no tactics", GapCode.ABSENT, lost, _DETAILED)
    for name, one in shares.items():
        yield from _share(name, one, whole, artifact, writer)
    if count:
        quantising = shares["quantising"].count
        yield writer.reading("engine.quantising.layer_share", quantising / count, artifact, f"{quantising} of {count}")
    if times is None:
        yield writer.gap(f"cannot tell times: {why_not}", GapCode.ABSENT, _SHARES, _EXPORT)


def _share(name: str, one: LayerShare, whole: float, artifact: str, writer: _Writer) -> Iterator[Reading]:
    named = f"; {', '.join(one.named)}" if one.named else ""
    yield writer.reading(f"engine.{name}.count", float(one.count), artifact, f"{one.count} layers{named}")
    if one.time is not None and whole > 0:
        place = f"{one.count} layers, {_time(one.time)} of {_time(whole)}{named}"
        yield writer.reading(f"engine.{name}.time_share", one.time / whole, artifact, place)


def _runs(files: EngineFiles, writer: _Writer) -> Iterator[Reading | Gap]:
    found = engine_figures.timing(files)
    compute, enqueue, copies = found.get("compute"), found.get("enqueue"), found.get("copies")
    if compute is None or not isinstance(compute.value, float):
        yield writer.gap("cannot tell: no times of whole runs were given", GapCode.ABSENT, _RUNS, _TIMED)
        return
    yield writer.sourced("engine.compute.median", compute)
    lost = []
    for signal, part in (("engine.enqueue_ratio", enqueue), ("engine.copy_ratio", copies)):
        if part is None or not isinstance(part.value, float) or compute.value <= 0:
            lost.append(signal)
            continue
        shown = f"{_time(part.value)} of {_time(compute.value)}; {part.place}"
        yield writer.reading(signal, part.value / compute.value, part.artifact, shown)
    if enqueue is not None:
        yield writer.sourced("engine.enqueue.median", enqueue)
    else:
        lost.append("engine.enqueue.median")
    if lost:
        yield writer.gap("the times of the runs lack what this is computed from", GapCode.ABSENT, tuple(lost), _TIMED)


def _summary(files: EngineFiles, writer: _Writer) -> Iterator[Reading]:
    """What the performance summary of a log states beside the medians."""
    for log, artifact in files.logs:
        summary = log.summary
        figures = {
            "engine.latency.mean": summary.get(LATENCY, MEAN),
            "engine.latency.median": summary.get(LATENCY, MEDIAN),
            "engine.latency.p99": summary.get(LATENCY, P99),
            "engine.latency.max": summary.get(LATENCY, MAX),
            "engine.compute.p99": summary.get(COMPUTE, P99),
            "engine.throughput": summary.throughput,
            "engine.compute_variation": summary.variation,
        }
        if summary.gpu_time is not None and summary.wall_time:
            figures["engine.gpu_share"] = summary.gpu_time / summary.wall_time
        for signal, value in figures.items():
            if value is not None:
                yield writer.reading(signal, value, artifact, "performance summary")
        if log.skipped_tactics:
            yield writer.reading("engine.tactics_skipped", float(log.skipped_tactics), artifact, "builder's messages")
        if log.dla_fallbacks:
            yield writer.reading("engine.dla_fallback", float(log.dla_fallbacks), artifact, "builder's messages")


def _facts(files: EngineFiles, writer: _Writer) -> Iterator[Reading | Gap]:
    for signal, found in (
        ("engine.device", engine_figures.device(files)),
        ("engine.precision", engine_figures.precision(files)),
    ):
        if found is not None:
            yield writer.sourced(signal, found)
        else:
            yield writer.gap("the files do not say it", GapCode.ABSENT, (signal,), _VERBOSE)


def _log(files: EngineFiles, writer: _Writer) -> Iterator[Reading | Gap]:
    """What only a verbose build log reports; any log reports that an engine is foreign."""
    if not files.logs:
        yield writer.gap("cannot tell: no log was given", GapCode.ABSENT, (*_BUILD, _SHAPE, _FOREIGN), _VERBOSE)
        return
    log, artifact = max(files.logs, key=lambda one: (one[0].is_build, one[0].is_verbose))
    if log.is_build and log.is_verbose:
        yield writer.reading("engine.rejected", float(log.rejected), artifact, _named(log.rejected_layers))
        yield writer.reading(
            "engine.unconstrained", float(log.unconstrained), artifact, _named(log.unconstrained_layers)
        )
        if log.reformats_needed is None:  # the builder speaks of them only where directIO asks it to avoid them
            why = "the builder does not say how many conversions it needs"
            yield writer.gap(why, GapCode.ABSENT, ("engine.reformats_needed",), _DIRECT)
        else:
            yield writer.reading("engine.reformats_needed", float(log.reformats_needed), artifact, "builder's messages")
    else:
        yield writer.gap("the log is not of a verbose build", GapCode.ABSENT, _BUILD, _VERBOSE)
    outside = [(one, name) for one, name in files.logs if one.outside or one.beyond]
    foreign = [(one, name) for one, name in files.logs if one.foreign]
    if outside:
        said, where = outside[0]
        place = said.outside_said or f"shape of {', '.join(said.beyond)}"
        count = sum(one.outside + len(one.beyond) for one, _ in outside)
        yield writer.reading(_SHAPE, float(count), where, place, bound=AT_LEAST if not said.outside else "")
    elif any(one.ranges and one.asked for one, _ in files.logs):
        yield writer.reading(_SHAPE, 0.0, artifact, "the shape of the run is within that of the build")
    else:
        next_step = "give the log of the server that runs it"
        yield writer.gap("the logs tell of no run with a shape", GapCode.ABSENT, (_SHAPE,), next_step)
    if foreign:
        yield writer.reading(_FOREIGN, 1.0, foreign[0][1], foreign[0][0].foreign)


def _named(layers: list[str]) -> str:
    return ", ".join(layers) or "builder's messages"


def _time(seconds: float) -> str:
    return format_value(seconds, "time")
