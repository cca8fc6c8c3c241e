"""The requests of an access log one by one, in the order of their arrival: for a load that resembles them.

Unlike a diagnosis it needs of each request when it arrived, and where the log has them its end, session, length and
route. Names of sessions stay in memory: they are for grouping only.
"""

from __future__ import annotations

import io
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from latdoctor.collectors import piped_input
from latdoctor.collectors.access_log import NAME, formats
from latdoctor.collectors.access_log.collector import forms_and_blocks
from latdoctor.collectors.access_log.entry import AccessLogEntry
from latdoctor.collectors.access_log.formats import AccessLogFormat
from latdoctor.collectors.input_files import modified_at
from latdoctor.collectors.logs import log_source
from latdoctor.errors import SourceError
from latdoctor.evidence.bundle import Artifact
from latdoctor.gap_code import GapCode, code_of_os_error
from latdoctor.sanitize import clean

MOST = 500_000  # requests that are read
_HOW = "pass an access log whose lines have times"


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """A request. Times in Unix seconds; None or empty for what the line does not have."""

    arrived: float
    ended: float | None = None
    status: int | None = None
    session: str = ""
    tokens: int | None = None
    route: str = ""


@dataclass(frozen=True, slots=True)
class RequestRecords:
    """The requests by arrival, and how many lines are not among them.

    `by_end`: requests whose time is that of their end, because the log has no duration. `coarse`: times are whole
    seconds. `beyond`: more than MOST requests, which were not read.
    """

    source: str
    records: tuple[RequestRecord, ...]
    unreadable: int = 0
    untimed: int = 0
    probes: int = 0
    by_end: int = 0
    beyond: int = 0
    coarse: bool = False


def read_records(path: Path, pattern: str = "", timeout: float = 30.0) -> RequestRecords:
    """Read the log `path`; `pattern` is that of --log-pattern. Raises SourceError without requests that have times."""
    source = clean(piped_input.display(path))
    try:
        raw = log_source.read(path, timeout)
    except OSError as error:
        code = code_of_os_error(error)
        reason = f"cannot be read: {error.strerror}"
        raise SourceError(reason, where=source, next_step=log_source.CHECK_PATH, code=code) from error
    written = None if piped_input.is_stream(path) else modified_at(path)
    artifact = Artifact(f"{NAME}/{path.name}", NAME, path.name, source, time.time(), raw.content, written)
    found, blocks = forms_and_blocks(artifact, pattern)
    if not found.forms:
        raise SourceError("contains no readable request", where=source, next_step=_HOW, code=GapCode.UNSUPPORTED)
    read = _Gathered(found.forms, artifact.taken_at)
    read.take(blocks)
    if not read.records:
        raise SourceError("has no requests with times", where=source, next_step=_HOW, code=GapCode.EMPTY)
    records = tuple(sorted(read.records, key=lambda one: one.arrived))
    counts = read.unreadable, read.untimed, read.probes, read.by_end, read.beyond
    return RequestRecords(source, records, *counts, coarse=not read.fine)


class _Gathered:
    def __init__(self, forms: Sequence[AccessLogFormat], taken_at: float) -> None:
        self._forms, self._taken_at = forms, taken_at
        self.records: list[RequestRecord] = []
        self.unreadable = self.untimed = self.probes = self.by_end = self.beyond = 0
        self.fine = False  # some time has a fraction of a second

    def take(self, blocks: Iterable[bytes]) -> None:
        for raw in _lines(blocks):
            text = formats.line_text(raw)
            if text is None:
                continue
            entry = next((one for form in self._forms if (one := form.read(text)) is not None), None)
            if entry is None:
                self.unreadable += 1
            elif entry.is_probe:
                self.probes += 1
            elif len(self.records) >= MOST:
                self.beyond += 1
            else:
                self._add(entry, raw)

    def _add(self, entry: AccessLogEntry, raw: bytes) -> None:
        ended = entry.ended or formats.line_time(raw, self._taken_at)
        known = entry.started or ended
        if known is None:
            self.untimed += 1
            return
        self.fine |= known.fine
        end = ended.time if ended is not None else None
        if entry.started is not None:
            arrived = entry.started.time
        elif entry.duration is not None:
            arrived = known.time - entry.duration.seconds
        else:
            arrived, end = known.time, None
            self.by_end += 1
        route = clean(entry.path.partition("?")[0], 100)
        self.records.append(RequestRecord(arrived, end, entry.outcome, entry.session, entry.tokens, route))


def _lines(blocks: Iterable[bytes]) -> Iterator[bytes]:
    for block in blocks:
        yield from (line for line in io.BytesIO(block) if not line.isspace())
