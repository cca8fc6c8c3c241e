"""Where the time of a request goes: the means of its stages, one after the other."""

from __future__ import annotations

from collections.abc import Sequence

from latdoctor.evidence.model import Evidence
from latdoctor.report.page.charts import LEAST
from latdoctor.report.page.material import COLORS, Seen
from latdoctor.report.page.model import TIME, Block, Course, NotSeen, Piece, Waterfall
from latdoctor.units import format_value

TOTAL = "latency.mean"
_TITLE = "Time of a request by stage"
# In the order in which a request goes through them. Where an engine tells prefill and decode, they are the computing.
_STAGES = (
    ("route.time.mean", "finding a replica"),
    ("preprocess.time.mean", "preprocessing"),
    ("session.time.mean", "conversation state"),
    ("dependency.time.mean", "another service"),
    ("queue.time.mean", "waiting in the queue"),
    ("prefill.time.mean", "prefill"),
    ("decode.time.mean", "decode"),
    ("compute.time.mean", "model"),
    ("postprocess.time.mean", "postprocessing"),
)
_PARTS_OF_MODEL = ("prefill.time.mean", "decode.time.mean")
_SLACK = 0.02  # of the mean latency: the means are of requests at slightly different times


def block(looks: Sequence[Seen]) -> Block:
    """A course for each look that tells stages, or why there is none."""
    courses, notes = [], []
    for look in looks:
        subject = _subject(look.evidence) if look.evidence else ""
        if look.evidence is None or not subject:
            notes.append(f"not seen {look.name}")
            continue
        pieces, note = _pieces(look.evidence, subject)
        courses.append(Course(look.name, pieces, COLORS.get(look.name, 0)))
        notes += [f"{look.name}: {note}"] if note else []
    if not courses:
        whys = [look.why for look in looks if look.why]
        return NotSeen(_TITLE, whys[0] if whys else "no source that was read tells stages of a request apart")
    longest = max(course.length for course in courses)
    if any(piece.length < LEAST * longest for course in courses for piece in course.pieces):
        notes.append(f"stages shorter than {format_value(LEAST * longest, TIME)} stand in the table only")
    note = "; ".join([*notes, "means over all requests: the slowest may spend their time elsewhere"])
    return Waterfall("stages", _TITLE, TIME, tuple(courses), note)


def _subject(evidence: Evidence) -> str:
    """Who tells the most stages; of these who has the highest latency. Subjects are never averaged."""
    told: dict[str, int] = {}
    for signal, _ in _STAGES:
        for subject in _values(evidence, signal):
            told[subject] = told.get(subject, 0) + 1
    latency = _values(evidence, TOTAL)
    return max(told, key=lambda subject: (told[subject], latency.get(subject, 0.0), subject), default="")


def _pieces(evidence: Evidence, subject: str) -> tuple[tuple[Piece, ...], str]:
    """The stages, with what of the mean latency none of them tells; and what does not fit."""
    told = {signal: value for signal, _ in _STAGES if (value := _values(evidence, signal).get(subject)) is not None}
    if any(part in told for part in _PARTS_OF_MODEL):
        told.pop("compute.time.mean", None)
    pieces = [Piece(name, told[signal]) for signal, name in _STAGES if told.get(signal, 0.0) > 0]
    total, known = _values(evidence, TOTAL).get(subject), sum(piece.length for piece in pieces)
    if total is None:
        return tuple(pieces), "the whole latency is not known"
    if known > total * (1 + _SLACK):
        return tuple(
            pieces
        ), f"the stages add up to {format_value(known, TIME)}, the mean latency is {format_value(total, TIME)}"
    if total - known > total * _SLACK:
        pieces.append(Piece("not told apart", total - known))
    return tuple(pieces), ""


def _values(evidence: Evidence, signal: str) -> dict[str, float]:
    return {
        reading.subject: reading.value
        for reading in evidence.readings_by_signal.get(signal, ())
        if isinstance(reading.value, float) and not reading.labels and not reading.bound
    }
