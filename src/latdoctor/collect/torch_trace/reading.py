"""One trace from its bytes to its evidence. Loaded only where a trace is read, since it needs numpy."""

from __future__ import annotations

from latdoctor.collect.torch_trace import evidence as trace_evidence
from latdoctor.collect.torch_trace.analysis import analyse
from latdoctor.collect.torch_trace.columns import Columns
from latdoctor.collect.torch_trace.kineto import HOW_TO_RECORD, KinetoReader
from latdoctor.collect.torch_trace.writer import NAME
from latdoctor.errors import SourceError
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import Evidence, Gap, Origin

# More GPU events, calls and operators than this are refused: their temporary files would need more than a gigabyte.
MAX_KEPT = 60_000_000
# Above this share of damaged events the rest cannot be trusted either.
MAX_DAMAGED = 0.01


def read_trace(artifact: Artifact, subject: str) -> Evidence:
    """What one trace shows. Raises SourceError where it cannot be read as a whole or holds no timed event."""
    reader = KinetoReader(artifact.content, artifact.source)
    with Columns(reader.damage) as columns:
        _read(reader, columns, artifact.source)
        summary = analyse(columns)
    seen = trace_evidence.evidence(summary, subject, artifact.name, reader.base_time)
    if not reader.damage.count:
        return seen
    count, first = reader.damage.count, reader.damage.first
    are = "is" if count == 1 else "are"
    reason = f"{subject}: {count} of {reader.events} events {are} damaged and left out; the first: {first}"
    damage = Gap(NAME, reason, (), subject, "record again if the figures matter", Origin(artifact.name))
    return Evidence.merge((seen, Evidence(gaps=(damage,))))


def _read(reader: KinetoReader, columns: Columns, where: str) -> None:
    for batch in reader.batches():
        columns.add(batch)
        if columns.kept > MAX_KEPT:
            raise SourceError(
                f"more than the {MAX_KEPT} GPU events, calls and operators that are read at most",
                where=where,
                next_step="record a shorter trace: 3 s under load are enough",
            )
    count, total, timed = reader.damage.count, reader.events, columns.counts.timed
    # One damaged event in a short trace is no reason to refuse it, unless it was the only one.
    if count > MAX_DAMAGED * total and (count > 1 or not timed):
        raise SourceError(
            f"{count} of {total} events are damaged; the first: {reader.damage.first}",
            where=where,
            next_step="record the trace again",
        )
    if not timed:
        held = f"only {total} events without a duration" if total else "no events"
        raise SourceError(f"the trace holds {held}", where=where, next_step=HOW_TO_RECORD)
