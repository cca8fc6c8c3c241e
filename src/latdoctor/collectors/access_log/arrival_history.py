"""The arrivals of an access log as a rate for each step of its whole time, for a forecast rather than a diagnosis.

Unlike a diagnosis it reads days of requests: the time of each counts, its latency does not. A step without a request is
a rate of zero. The first and the last step are incomplete, and the slow ones among the last arrivals are not in the log
yet: both are left out.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from latdoctor.collectors import piped_input
from latdoctor.collectors.access_log import NAME
from latdoctor.collectors.access_log.collector import forms_and_blocks
from latdoctor.collectors.access_log.request_gathering import RequestGatherer
from latdoctor.collectors.access_log.request_reading import read_lines
from latdoctor.collectors.access_log.step_table import StepTable
from latdoctor.collectors.input_files import modified_at
from latdoctor.collectors.logs import log_source
from latdoctor.collectors.time_range import TimeRange
from latdoctor.errors import SourceError
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import Evidence, Gap, Origin, Series
from latdoctor.gap_code import GapCode, code_of_os_error
from latdoctor.sanitize import clean

_NOTED = 0.01  # share of the requests that are read from which missing ones are reported
MOST_STEPS = 20_000  # a week in steps of 32 s
_HOW = "pass an access log whose lines have times, or --csv FILE with `time,value`"


def arrival_history(path: Path, past: TimeRange | None, pattern: str = "", timeout: float = 30.0) -> Evidence:
    """The arrival rate (/s) of a log at the end of each step, and what of the log is not in it.

    Raises SourceError without requests that have times.
    """
    source = clean(piped_input.display(path))
    try:
        raw = log_source.read(path, timeout)
    except OSError as error:
        reason = f"cannot be read: {error.strerror}"
        step = log_source.CHECK_PATH
        raise SourceError(reason, where=source, next_step=step, code=code_of_os_error(error)) from error
    written = None if piped_input.is_stream(path) else modified_at(path)
    artifact = Artifact(f"{NAME}/{path.name}", NAME, path.name, source, time.time(), raw.content, written)
    found, blocks = forms_and_blocks(artifact, pattern)
    if not found.forms:
        raise SourceError("contains no readable request", where=source, next_step=_HOW, code=GapCode.UNSUPPORTED)
    read = read_lines(blocks, found, past, artifact, MOST_STEPS)
    gathered = max(read.gathered.values(), key=lambda one: one.kept)
    tables = list(_tables(gathered))
    times, rates = _rates(tables) if any(len(table) for table in tables) else ((), ())
    if len(times) < 2:
        reason = "has no requests with times, or only those of a moment"
        raise SourceError(reason, where=source, next_step=_HOW, code=GapCode.EMPTY)
    series = Series("arrival.rate", f"server/{clean(path.name, 100)}", times, rates, Origin(artifact.name))
    return Evidence(series=(series,), gaps=tuple(_gaps(raw, gathered, source)))


def _gaps(raw: log_source.LogSource, gathered: RequestGatherer, source: str) -> Iterator[Gap]:
    """What is missing in the rates, so that they are too low."""
    if raw.missing:
        yield Gap(NAME, f"{source}: {raw.missing}", code=raw.code)
    timeless = gathered.untimed + gathered.undated_left
    for count, what, code in (
        (gathered.other, "lines could not be read as requests", GapCode.UNREADABLE),
        (timeless, "requests have no time", GapCode.AMBIGUOUS),
        (gathered.beyond, "requests of further replicas were not read", GapCode.TOO_LARGE),
    ):
        if count > _NOTED * gathered.kept:
            yield Gap(NAME, f"{source}: {count} {what}: their rate is missing", code=code)


def _tables(gathered: RequestGatherer) -> Iterator[StepTable]:
    """All requests with a time, by replica."""
    for replica, rows in gathered.by_replica.items():
        table = gathered.tables.get(replica) or StepTable(MOST_STEPS)
        table.add(rows.chosen(row for row, ended in enumerate(rows.ended) if ended >= 0))
        yield table


def _rates(tables: Sequence[StepTable]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The ends of the complete steps, and the arrivals a second in each."""
    width = max(table.width for table in tables)
    arrived: dict[int, int] = {}
    slowest = 0.0
    for table in tables:
        if table.width < width:
            table.widen(width)
        steps = list(table.steps())
        for end, step in steps:
            place = round(end / width)
            arrived[place] = arrived.get(place, 0) + step.arrived
        slowest = max([slowest, *(step.latency(0.99) for _, step in steps[-3:] if step.durations)])
    last = max(arrived) - 1 - math.ceil(slowest / width)
    places = range(min(arrived) + 1, last + 1)
    return tuple(float(place * width) for place in places), tuple(arrived.get(place, 0) / width for place in places)
