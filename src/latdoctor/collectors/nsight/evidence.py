"""What an export shows, as evidence: the signals of a trace, what only Nsight Systems records, and what it lacks.

A table exists only where something was recorded, so that an absent one is no zero: it may be that nothing happened,
or that it was not asked for. A CUDA graph is recorded as a whole unless the capture asked for its nodes: the GPU was
busy then, with kernels that are not counted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from msgspec import structs

from latdoctor.collectors.logs.error_code_tables import cuda_codes
from latdoctor.collectors.nsight import GPU, NAME, OVERHEADS, UNREAD
from latdoctor.collectors.nsight.sqlite_rows import BUFFER_FULL, FUNCTIONS, JIT, MODULES, FailedCall
from latdoctor.collectors.torch_trace import evidence as trace_evidence
from latdoctor.collectors.torch_trace.event_names import is_failure
from latdoctor.collectors.torch_trace.summary import TraceSummary
from latdoctor.evidence.model import AT_LEAST, Event, Evidence, Gap, Origin, Reading, Window
from latdoctor.gap_code import GapCode

CUDA_ERROR = "log.cuda_error"


RECORD = "record with: nsys profile --trace=cuda,nvtx,osrt COMMAND, 3 s under load; then nsys export --type sqlite"
_BY_NODE = "record again with --cuda-graph-trace=node; it costs more while it records"
_IN_GRAPHS = (
    "kernel.tiny_ratio",
    "kernel.duration.mean",
    "kernel.gap.mean",
    "kernel.per_step",
    "launch.time_per_kernel",
    "sync.count_per_kernel",
)
_STEPS = ("trace.steps", "kernel.per_step", "step.duration.mean")
_MARK = "mark each pass, as with torch.cuda.nvtx.range_push and range_pop, and record with --trace=cuda,nvtx"
_PRINT = "print them as a table too: nvprof --csv --print-api-summary -i FILE"
_COPIES = ("copy.time_share", "copy.bytes", "copy.pageable_share", "copy.bandwidth")
_MAX_EVENTS = 200
# How libraries find out what a device, a pointer or a driver can do: they ask, and take an error for a "no".
_PROBES = re.compile(r"cu(?:da)?\w*(?:Get|Query|CanAccess|IsCapturing|Peek|LastError|SetAttribute)")
_ANSWERS = frozenset(
    {500, 600, 704, 705, 800, 801}
)  # not found, not ready, already (not) enabled, not permitted, not supported


@dataclass(frozen=True, slots=True)
class Capture:
    """What an export has beside the events. None: not recorded; `absent` are the tables that it lacks."""

    gpus: tuple[str, ...] = ()
    graphs: int = 0
    absent: frozenset[str] = frozenset()
    overheads: Mapping[int, float] | None = None
    failures: Sequence[FailedCall] | None = None
    base: float | None = None  # unix seconds
    calls_have_names: bool = True  # else they were left out


def evidence(summary: TraceSummary, capture: Capture, subject: str, artifact: str) -> Evidence:
    """What the export in `artifact` says of `subject` (`trace/NAME`)."""
    seen = trace_evidence.evidence(summary, subject, artifact, capture.base)
    window = seen.readings[0].window if seen.readings else Window()
    gaps = [*(_ours(gap) for gap in seen.gaps if not gap.signals or _read(gap)), *_gaps(capture, subject, artifact)]
    if summary.steps is None and summary.kernels is not None:
        gaps.append(_no_steps(capture, subject, artifact))
    hidden = {signal for gap in gaps for signal in gap.signals} | UNREAD
    readings = [_counted(one, capture) for one in seen.readings if one.signal not in hidden]
    readings += _more(capture, subject, artifact, window)
    events = tuple(_errors(capture, subject, artifact))
    looked = ((CUDA_ERROR, subject),) if capture.failures is not None else ()
    return Evidence(seen.subjects, tuple(readings), events=events, looked=looked, gaps=tuple(gaps))


def _ours(gap: Gap) -> Gap:
    """The analysis speaks of traces of the PyTorch profiler where it says what to record."""
    return structs.replace(gap, source=NAME, signals=_read(gap), next_step=RECORD if gap.next_step else "")


def _read(gap: Gap) -> tuple[str, ...]:
    return tuple(signal for signal in gap.signals if signal not in UNREAD)


def _counted(reading: Reading, capture: Capture) -> Reading:
    """A graph was counted as one kernel, of which there are more."""
    if reading.signal != "trace.kernels" or not capture.graphs:
        return reading
    note = f"{capture.graphs} of them are whole CUDA graphs"
    return structs.replace(reading, bound=AT_LEAST, note=note)


def _gaps(capture: Capture, subject: str, artifact: str) -> Iterator[Gap]:
    def gap(reason: str, code: GapCode, signals: tuple[str, ...], next_step: str) -> Gap:
        return Gap(NAME, reason, signals, subject, next_step, Origin(artifact), code)

    if capture.graphs:
        found = f"{capture.graphs} launches of CUDA graphs were recorded whole: the kernels in them are not seen"
        yield gap(found, GapCode.ABSENT, _IN_GRAPHS, _BY_NODE)
    if "copies" in capture.absent:
        found = "cannot tell: the export has no table of copies; there were none, or they were not recorded"
        yield gap(found, GapCode.ABSENT, _COPIES, RECORD)
    if capture.overheads is None:
        yield gap("cannot tell: the export has no table of overheads", GapCode.ABSENT, OVERHEADS, RECORD)
    if capture.failures is None:
        yield gap(
            "cannot tell: the export holds no return codes of calls", GapCode.ABSENT, ("cuda.error_calls",), RECORD
        )
    if not capture.calls_have_names:
        found = "cannot tell: it names calls by numbers, some of which are not known here, so that none were read"
        yield gap(found, GapCode.UNSUPPORTED, (), _PRINT)
    if not capture.gpus:
        yield gap("the export does not name its GPU", GapCode.ABSENT, (GPU,), "")


def _no_steps(capture: Capture, subject: str, artifact: str) -> Gap:
    known = "no NVTX ranges were recorded" if "ranges" in capture.absent else "no NVTX range repeats as steps do"
    lost = tuple(signal for signal in _STEPS if signal not in _IN_GRAPHS or not capture.graphs)
    return Gap(NAME, f"steps are unknown: {known}", lost, subject, _MARK, Origin(artifact), GapCode.ABSENT)


def _more(capture: Capture, subject: str, artifact: str, window: Window) -> Iterator[Reading]:
    if capture.gpus:
        named = ", ".join(dict.fromkeys(capture.gpus))
        yield Reading(GPU, subject, named, Origin(artifact, "target information"), window)
    if capture.overheads is None:
        return
    kinds = ((BUFFER_FULL,), (MODULES, FUNCTIONS), (JIT,))
    for signal, these in zip(OVERHEADS, kinds, strict=True):
        spent = sum(capture.overheads.get(kind, 0.0) for kind in these)
        yield Reading(signal, subject, spent, Origin(artifact, "overheads of the driver"), window)


def _errors(capture: Capture, subject: str, artifact: str) -> Iterator[Event]:
    """The first failure of every kind. A probe's negative answer and "already enabled" are no errors."""
    dead: set[int] = set()
    seen: Counter[tuple[str, int, bool]] = Counter()
    for one in capture.failures or ():
        if one.code in _ANSWERS or not is_failure(one.code) or _PROBES.match(one.call):
            continue
        secondary = one.process in dead
        seen[one.call, one.code, secondary] += 1
        known = cuda_codes().get(one.code)
        sticky = known is not None and known.sticky
        if sticky:
            dead.add(one.process)
        if seen[one.call, one.code, secondary] > 1 or len(seen) > _MAX_EVENTS:
            continue
        name = known.name if known else f"CUDA error {one.code}"
        yield Event(
            CUDA_ERROR,
            subject,
            Origin(artifact, f"{one.call} at {one.start * 1e-9:.6f} s"),
            {
                "code": float(one.code),
                "name": name,
                "pid": str(one.process),
                "sticky": float(sticky),
                "secondary": float(secondary),
            },
            None if capture.base is None else capture.base + one.start * 1e-9,
            f"{one.call} returned {one.code}{f' ({known.text})' if known else ''}",
        )
