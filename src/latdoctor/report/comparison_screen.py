"""Two observations on one screen: faster, slower or the same, by how much, why, and what else changed.

For `bundle diff`, `baseline compare` and the head of `diagnose --against`; at most 24 lines of 80 columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from latdoctor.conditions.evaluator import show
from latdoctor.diagnosis.codes import AnswerKind
from latdoctor.diagnosis.result import Answer, Contrast, Diagnosis
from latdoctor.evidence.catalogue import catalogue
from latdoctor.evidence.diff import Difference
from latdoctor.evidence.model import Value
from latdoctor.evidence.speed import SPEED_SIGNALS, Pace, SpeedChange, Trend, speed_change, trend
from latdoctor.report.fit_to_screen import Line
from latdoctor.report.fit_to_screen import fitted as fit
from latdoctor.report.subject_names import shortened
from latdoctor.report.text_utils import WIDTH, command_lines, wrapped
from latdoctor.report.vital_signs import quantity
from latdoctor.sanitize import clean, counted, fitted
from latdoctor.units import percent

STYLE = {Pace.FASTER: "bold green", Pace.SLOWER: "bold red", Pace.SAME: "bold", Pace.UNKNOWN: "bold magenta"}
_PACE = {Pace.FASTER: "FASTER", Pace.SLOWER: "SLOWER", Pace.SAME: "THE SAME"}
_TREND_STYLE = {Trend.BETTER: "green", Trend.WORSE: "red", Trend.NEUTRAL: ""}
_LATENCY = frozenset(SPEED_SIGNALS) - {"compute.time.mean", "gpu.sm_clock"}
# What an engineer asks about first, in this order, and its name beside a change.
_NAMES = {
    "error.ratio": "errors",
    "client.error_ratio": "errors at the client",
    "arrival.rate": "requests arriving",
    "completion.rate": "requests answered",
    "queue.depth": "requests waiting",
    "queue.time.mean": "mean wait",
    "compute.time.mean": "mean compute time",
    "batch.size.mean": "mean batch",
    "requests.running": "requests running",
    "kv.usage": "KV cache used",
    "kv.preemption_rate": "preemptions",
    "gc.time_share": "time in garbage collection",
    "dependency.time.mean": "mean time of the dependency",
    "gpu.sm_clock_ratio": "SM clock, share of its maximum",
    "gpu.temperature": "GPU temperature",
    "gpu.power": "GPU power",
    "gpu.utilization": "GPU utilization",
    "gpu.memory_used_ratio": "GPU memory used",
    "gpu.busy_ratio": "GPU busy",
    "copy.time_share": "time in copies alone",
    "sync.idle_share": "host waiting on an idle GPU",
    "launch.api_share": "time in launch calls",
    "trace.span": "length of the trace",
    "trace.kernels": "kernels",
    "kernel.duration.mean": "mean kernel",
    "engine.enqueue.median": "median time to enqueue a run",
    "engine.layers": "layers",
    "engine.reformat.time_share": "time in layout and type conversions",
    "engine.fp32.time_share": "time in FP32 layers",
    "alloc.reserved": "memory reserved",
    "alloc.inactive_split_ratio": "memory lost to fragmentation",
    "cgroup.cpu.throttled_ratio": "periods throttled by the CPU quota",
    "host.cpu.busy_ratio": "CPU busy",
    "host.psi.cpu_some": "time in which a task waited for a CPU",
    "process.rss": "memory of the process",
}
_RANK = {name: rank for rank, name in enumerate(_NAMES)}
ROWS = 8  # changes on the default screen
_FEWEST = 3  # rows, up to which other quantities than those of _NAMES are taken
_CAUSES, _EVIDENCE = 2, 2
_MANY = 100  # times, from which on a percentage says less than the factor


@dataclass(frozen=True, slots=True)
class ComparedPair:
    """Two observations: their names, every value of either, and the diagnosis of the second.

    `contrast` is None where the first has values alone, as a baseline has.
    """

    before: str
    after: str
    values: tuple[Difference, ...]
    diagnosis: Diagnosis
    targets: tuple[str, str]
    contrast: Contrast | None = None
    titles: Mapping[str, str] | None = None  # of causes that the first diagnosis names


def headline(speed: SpeedChange) -> str:
    """`SLOWER  P99 133 ms → 3.57 s (+2578 %)`."""
    if speed.pace == Pace.UNKNOWN:
        return "CANNOT COMPARE SPEED  no latency was measured in both"
    values = _values(speed.signal, speed.before, speed.after)
    name = "SM clock" if speed.signal == "gpu.sm_clock" else ""
    said = f"{name} {values}" if name else quantity(speed.signal, values)
    near = ", within 20 %" if speed.pace == Pace.SAME and speed.before != speed.after else ""
    return f"{_PACE[speed.pace]}  {said} ({change(speed.before, speed.after)}{near})"


def change(before: Value | None, after: Value | None) -> str:
    """`+167 %`, `-46 %`, from a hundred times on `x180`; empty where there is no percentage."""
    if isinstance(before, str) or isinstance(after, str) or before is None or after is None:
        return ""
    if not before or before * after < 0:
        return "from 0" if not before and after else ""
    factor = after / before
    return f"{(factor - 1) * 100:+.0f} %" if factor < _MANY else f"×{factor:.0f}"


def moved(found: Sequence[Difference], speed: SpeedChange) -> tuple[Difference, ...]:
    """What changed besides the speed, one for each quantity, what an engineer asks about first."""
    best: dict[str, Difference] = {}
    for one in found:  # the largest change first, so that the first of a quantity is its largest
        if one.is_one and one.before is not None and one.after is not None and _is_shown(one, speed):
            best.setdefault(one.signal, one)
    known = sorted((one for one in best.values() if one.signal in _RANK), key=lambda one: _RANK[one.signal])
    others = [one for one in best.values() if one.signal not in _RANK]
    # A second latency that goes the other way is news; one that goes the same way is not.
    contrary = [one for one in others if one.signal in _LATENCY and not _agrees(one, speed)]
    rest = [one for one in others if one.signal not in _LATENCY][: max(0, _FEWEST - len(known) - len(contrary))]
    return (*contrary, *known, *rest)


def _is_shown(one: Difference, speed: SpeedChange) -> bool:
    signal = catalogue().get(one.signal)
    return one.signal != speed.signal and signal is not None and signal.kind not in ("p-value", "text")


def _agrees(one: Difference, speed: SpeedChange) -> bool:
    return trend(one) == {Pace.SLOWER: Trend.WORSE, Pace.FASTER: Trend.BETTER}.get(speed.pace)


def moved_row(one: Difference) -> Line:
    """` +5475 %  worse   mean wait 15.5 ms → 866 ms`."""
    meaning = trend(one)
    name = _NAMES.get(one.signal) or _in_words(one.signal)
    word = "" if meaning == Trend.NEUTRAL else meaning.value
    text = f"{change(one.before, one.after):>10}  {word:<6}  {name} {_values(one.signal, one.before, one.after)}"
    return Line(fitted(text, WIDTH), _TREND_STYLE[meaning])


def _in_words(signal: str) -> str:
    """The quantity in the catalogue's words, up to its first bracket."""
    known = quantity(signal, "").strip()
    row = catalogue().get(signal)
    return known or fitted((row.description if row else signal).partition(" (")[0], 40)


def _values(signal: str, before: Value | None, after: Value | None) -> str:
    return f"{shown(signal, before)} → {shown(signal, after)}"


def shown(signal: str, value: Value | None) -> str:
    """`value` with its unit."""
    if value is None:
        return "not measured"
    return clean(show(signal, value) if signal in catalogue() else str(value), 200)


def screen(pair: ComparedPair, next_command: str) -> tuple[Line, ...]:
    """At most 24 lines: the speed, what was compared, why, what changed, what only one has, and the next command."""
    speed = speed_change(pair.values)
    width = (WIDTH - len(" against ")) // 2 - 2
    head = [Line(line, STYLE[speed.pace]) for line in wrapped(headline(speed), "", "  ")[:2]]
    head.append(Line(f"{shortened(pair.after, width)} against {shortened(pair.before, width)}", "dim"))
    if pair.targets[0] != pair.targets[1]:
        head.append(Line(fitted(f"two targets: {pair.targets[1]} against {pair.targets[0]}", WIDTH), "dim"))
    rows = [moved_row(one) for one in moved(pair.values, speed)[:ROWS]]
    counts = [Line(f" {_counts(pair.values)}", "dim")]
    command = command_lines(next_command, WIDTH - 8)
    next_lines = [Line(f"{'       ' if number else ' Next  '}{line}", "bold") for number, line in enumerate(command)]
    end = [*next_lines, Line(" -v every value · -o json", "dim")]
    return fit([head, _why(pair, speed), rows, counts, end])


def _why(pair: ComparedPair, speed: SpeedChange) -> Iterator[Line]:
    """The named causes with their evidence, whether they are new, and those that are gone."""
    diagnosis, answer = pair.diagnosis, pair.diagnosis.answer
    before: Answer | None = pair.contrast.answers[0] if pair.contrast else None
    named = [one for one in diagnosis.causes if one.id in answer.causes] if answer.kind == AnswerKind.NAMED else []
    messages = {check.id: check.message for check in diagnosis.checks}
    for number, cause in enumerate(named[:_CAUSES]):
        known = ", as before" if before and cause.id in before.causes else ""
        label = " Why  " if not number else "      "
        yield Line(fitted(f"{label} {cause.title}{known} ({percent(cause.probability)})", WIDTH), "bold")
        for name in cause.evidence_for[:_EVIDENCE]:
            yield Line(fitted(f"         {messages.get(name, name)}", WIDTH))
    titles = pair.titles or {}
    gone = [name for name in (before.causes if before else ()) if name not in answer.causes]
    for name in gone[:_CAUSES]:
        yield Line(fitted(f" Gone  {titles.get(name, name)}", WIDTH), "bold")
    if not named and not gone:
        yield Line(f" Why   {_no_cause(answer, speed)}", "bold")


def _no_cause(answer: Answer, speed: SpeedChange) -> str:
    if answer.kind == AnswerKind.ONE_OF:
        return "one of several causes; latdoctor diagnose lists them"
    if answer.kind == AnswerKind.UNEXPLAINED:
        return "unknown: no known cause fits what was found"
    if speed.pace in (Pace.SLOWER, Pace.FASTER):
        return "no known cause differs; what changed with it is below"
    return "no cause was found"


def _counts(found: Sequence[Difference]) -> str:
    both = [one for one in found if one.before is not None and one.after is not None]
    changed = sum(one.is_one for one in both)
    alone = [sum(one.after is None for one in found), sum(one.before is None for one in found)]
    only = f"; {alone[0]} only before, {alone[1]} only after" if any(alone) else ""
    return f"{counted(len(both) - changed, 'value')} within 20 % of each other, {changed} beyond{only}"


def document(pair: ComparedPair) -> dict[str, Any]:
    """Everything as JSON: each value with its change in per cent and what it means."""
    speed = speed_change(pair.values)
    return {
        "before": pair.before,
        "after": pair.after,
        "targets": pair.targets,
        "speed": {**_plain(speed), "change_percent": _percent(speed.before, speed.after)},
        "verdict": pair.diagnosis.verdict,
        "causes": [
            {"id": one.id, "title": one.title, "probability": one.probability, "named": one.named}
            for one in pair.diagnosis.causes
        ],
        "contrast": pair.contrast,
        "values": [
            {
                "signal": one.signal,
                "subject": one.subject,
                "before": one.before,
                "after": one.after,
                "change_percent": _percent(one.before, one.after),
                "differs": one.is_one,
                "trend": trend(one),
            }
            for one in pair.values
        ],
    }


def _plain(speed: SpeedChange) -> dict[str, Any]:
    return {name: getattr(speed, name) for name in SpeedChange.__struct_fields__}


def _percent(before: Value | None, after: Value | None) -> float | None:
    if isinstance(before, str) or isinstance(after, str) or not before or after is None:
        return None
    return round((after / before - 1) * 100, 3)
