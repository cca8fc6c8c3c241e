"""Traces from their bytes to their evidence. Loaded only where a trace is read, since it needs numpy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from time import monotonic

import msgspec

from latdoctor.collectors.base import progress_listener, report_progress
from latdoctor.collectors.torch_trace import NAME
from latdoctor.collectors.torch_trace.event_store import TraceStore
from latdoctor.collectors.torch_trace.json_stream import HOW_TO_RECORD, KinetoReader
from latdoctor.collectors.torch_trace.parallel import ChildProcess, first_done, processors, second_half
from latdoctor.errors import SourceError
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import Evidence, Gap, Origin
from latdoctor.gap_code import GapCode

# More GPU events, calls and operators than this are refused: their temporary files would need more than a gigabyte.
MAX_KEPT = 60_000_000
# Above this share of damaged events the rest cannot be trusted either.
MAX_DAMAGED = 0.01
_REPORTED_EVERY = 0.5  # s


class _TraceResult(msgspec.Struct):
    """One trace of several, as the process that read it returns it: its evidence, or why there is none."""

    evidence: Evidence | None
    what: str = ""
    where: str = ""
    next_step: str = ""


_OUTCOME = msgspec.msgpack.Decoder(_TraceResult)


def read_traces(artifacts: Sequence[Artifact]) -> Iterator[Evidence | SourceError]:
    """What each trace shows, in their order, several at a time in processes of their own; the error where one cannot
    be read.
    """
    found: dict[int, Evidence | SourceError] = {}
    waiting = list(range(len(artifacts)))
    running: dict[ChildProcess, int] = {}
    with ExitStack() as opened:
        while waiting or running:
            while waiting and len(running) < processors() and processors() > 1:
                child = _started(artifacts[waiting[0]], opened)
                if child is None:
                    break
                running[child] = waiting.pop(0)
            if waiting and not running:  # no process to be had: this one reads
                index = waiting.pop(0)
                found[index] = _outcome(_tried(artifacts[index]))
            for child in first_done(tuple(running), _REPORTED_EVERY) if running else ():
                index = running.pop(child)
                answer = child.answer()
                outcome = _tried(artifacts[index]) if answer is None else _OUTCOME.decode(answer)
                found[index] = _outcome(outcome)
            report_progress(f"traces: {len(found)} of {len(artifacts)} read")
    for index in range(len(artifacts)):
        yield found[index]


def _started(artifact: Artifact, opened: ExitStack) -> ChildProcess | None:
    try:
        return opened.enter_context(ChildProcess(lambda: _in_child(artifact)))
    except OSError:  # too many processes: others will be done soon, or this one reads
        return None


def _in_child(artifact: Artifact) -> bytes:
    with progress_listener(lambda what: None):  # the parent reports the progress of all of them
        return msgspec.msgpack.encode(_tried(artifact))


def _tried(artifact: Artifact) -> _TraceResult:
    try:
        return _TraceResult(read_trace(artifact, halves=False))
    except SourceError as error:
        return _TraceResult(None, error.what, error.where, error.next_step)


def _outcome(result: _TraceResult) -> Evidence | SourceError:
    return result.evidence or SourceError(result.what, where=result.where, next_step=result.next_step)


def read_trace(artifact: Artifact, *, halves: bool = True) -> Evidence:
    """What one trace shows. Raises SourceError where it cannot be read as a whole or holds no timed event.

    With `halves` a large plain file is read by two processes.
    """
    content, where, subject = artifact.content, artifact.source, subject_of(artifact)
    with ExitStack() as opened:
        rest = second_half(content, where, opened) if halves else None
        # Imported here: the second process is reading already while they are loaded.
        from latdoctor.collectors.torch_trace.analysis import analyse
        from latdoctor.collectors.torch_trace.evidence import evidence

        reader = KinetoReader(content, where, stop=rest.start if rest else None)
        columns = opened.enter_context(TraceStore(reader.damage))
        _read(reader, columns, where)
        if rest and reader.stopped and not rest.merge_into(columns, reader):
            reader = reader.resumed(rest.start)
            _read(reader, columns, where)
        _check(reader, columns, where)
        summary = analyse(columns, beside=rest is not None)
    seen = evidence(summary, subject, artifact.name, reader.base_time)
    return Evidence.merge((seen, Evidence(gaps=tuple(_flaws(reader, subject, Origin(artifact.name))))))


def subject_of(artifact: Artifact) -> str:
    """`trace/NAME`, by the artifact's name: each trace is a subject of its own, each rank of a folder as well."""
    return f"trace/{artifact.name.rpartition('/')[2].removesuffix('.gz').removesuffix('.json')}"


def _flaws(reader: KinetoReader, subject: str, origin: Origin) -> Iterator[Gap]:
    count, first = reader.damage.count, reader.damage.first
    if count:
        are = "is" if count == 1 else "are"
        reason = f"{count} of {reader.events} events {are} damaged and left out; the first: {first}"
        yield Gap(NAME, reason, (), subject, "record again if the figures matter", origin, GapCode.UNREADABLE)
    if reader.tail_unread:
        reason = "what follows its events is too long to be read: whether the file is whole is unknown"
        yield Gap(NAME, reason, (), subject, "record again without the memory timeline", origin, GapCode.TOO_LARGE)


def _read(reader: KinetoReader, columns: TraceStore, where: str) -> None:
    known = monotonic()
    for batch in reader.batches():
        columns.add(batch)
        _must_fit(columns, where)
        if monotonic() - known > _REPORTED_EVERY:
            known = monotonic()
            report_progress(f"{where}: {reader.events} events read")


def _must_fit(columns: TraceStore, where: str) -> None:
    if columns.kept > MAX_KEPT:
        raise SourceError(
            f"more than the {MAX_KEPT} GPU events, calls and operators that are read at most",
            where=where,
            next_step="record a shorter trace: 3 s under load are enough",
        )


def _check(reader: KinetoReader, columns: TraceStore, where: str) -> None:
    _must_fit(columns, where)
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
        raise SourceError(f"the trace holds {held}", where=where, next_step=HOW_TO_RECORD, code=GapCode.EMPTY)
