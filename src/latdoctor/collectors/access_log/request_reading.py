"""The lines of a request log one by one: requests of each of its formats, and events of a proxy's error log.

With a time range, blocks of lines of another time are skipped: all samples of their lines are requests far outside.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from latdoctor.collectors import time_range
from latdoctor.collectors.access_log import ERROR_LINE, formats, proxy_errors
from latdoctor.collectors.access_log.entry import AccessLogEntry, Timestamp
from latdoctor.collectors.access_log.formats import AccessLogFormat
from latdoctor.collectors.access_log.recognition import Recognised
from latdoctor.collectors.access_log.request_gathering import RequestGatherer
from latdoctor.collectors.logs import log_blocks
from latdoctor.collectors.logs.log_clock import ahead_within
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import Event, Origin, Value
from latdoctor.evidence.redaction.redactor import without_secrets
from latdoctor.sanitize import clean

_MAX_EVENTS = 1000
_TRIED_FOR_TIMES = 100  # requests whose line is searched for a time
_BEFORE_BORROWING = 1000  # lines at the beginning whose time is noted for requests without one
_SAMPLES = 16  # lines of a block
_FAR = 900.0  # seconds outside the time range: lines are only roughly in order, and requests may be as long


@dataclass(frozen=True, slots=True)
class RequestLines:
    """The requests of a log by their format, and the failures that the error log of a proxy reports."""

    gathered: dict[AccessLogFormat, RequestGatherer]
    events: list[Event]


def read_lines(
    blocks: Iterable[bytes],
    found: Recognised,
    requested: time_range.TimeRange | None,
    artifact: Artifact,
    most_steps: int | None = None,
) -> RequestLines:
    """`most_steps`: of the sums that are kept of the requests of a long log."""
    ahead = ahead_within(log_blocks.head(artifact.content), artifact.written_by)
    read = RequestLines({form: RequestGatherer(requested, ahead, most_steps) for form in found.forms}, [])
    near: Timestamp | None = None  # of the lines before: some servers log requests without a time
    borrowing = timed = 0  # requests without a time of their own, and those of them in a record that has one
    for number, raw in _numbered(blocks, read.gathered, requested):
        text = formats.line_text(raw)
        form, entry = _entry(text, found.forms) if text is not None else (None, None)
        if form is not None and entry is not None:
            if entry.ended is not None and not entry.ended.zoned and (taken := formats.carrier_time(raw)) is not None:
                entry = replace(entry, ended=taken)
            if entry.ended is None:
                borrowing += 1
                own = formats.line_time(raw, artifact.taken_at) if timed or borrowing <= _TRIED_FOR_TIMES else None
                timed += own is not None
                entry = replace(entry, ended=own or near)
                read.gathered[form].borrowed |= own is None and near is not None
            read.gathered[form].take(entry, raw, number)
            continue
        if text is not None and found.errors and any(mark in raw for mark in proxy_errors.MARKS):
            error = proxy_errors.read(text)
            if error is not None:
                read.events.extend(_event(error, text, number, artifact, requested, len(read.events)))
                continue
        if raw.strip() and found.forms:
            read.gathered[found.forms[0]].other += 1
            if (borrowing or number <= _BEFORE_BORROWING) and (time := formats.line_time(raw, artifact.taken_at)):
                near = replace(time, fine=False)
    return read


def _entry(text: str, forms: Sequence[AccessLogFormat]) -> tuple[AccessLogFormat, AccessLogEntry] | tuple[None, None]:
    """The request in a line, and its format."""
    for form in forms:
        if (entry := form.read(text)) is not None:
            return form, entry
    return None, None


def _event(
    error: proxy_errors.ErrorLine,
    text: str,
    number: int,
    artifact: Artifact,
    requested: time_range.TimeRange | None,
    count: int,
) -> Iterator[Event]:
    """The event of a line of a proxy's error log, if it reports a failed request within the time range."""
    if error.failure is None or count >= _MAX_EVENTS:
        return
    if requested is not None and (error.time is None or not requested.contains(error.time.time)):
        return
    named: dict[str, Value] = {"reason": str(error.failure)}
    named |= {name: clean(without_secrets(text), 200) for name, text in
              (("path", error.path), ("server", error.server)) if text}  # fmt: skip
    place = Origin(artifact.name, f"line {number}")
    time = error.time.time if error.time else None
    yield Event(ERROR_LINE, server_subject(artifact), place, named, time, clean(without_secrets(text), 2000))


def _numbered(
    blocks: Iterable[bytes],
    gathered: Mapping[AccessLogFormat, RequestGatherer],
    requested: time_range.TimeRange | None,
) -> Iterator[tuple[int, bytes]]:
    """The lines with their numbers, without those of blocks that are far outside the time range."""
    number = 0
    for block in blocks:
        if requested is not None and _is_far(block, gathered, requested):
            number += block.count(b"\n")
            continue
        for raw in io.BytesIO(block):
            number += 1
            yield number, raw


def _is_far(block: bytes, gathered: Mapping[AccessLogFormat, RequestGatherer], requested: time_range.TimeRange) -> bool:
    """Whether all samples of a block are requests before the time range, or all after it; the log has their times."""
    lines = [text for raw in _sampled(block) if (text := formats.line_text(raw)) is not None]
    found = [_entry(text, tuple(gathered)) for text in lines]
    entries = [(form, entry) for form, entry in found if form is not None and entry is not None]
    times = [entry.ended.time for _, entry in entries if entry.ended is not None and entry.ended.zoned]
    if not times or len(times) < len(found):
        return False
    far = max(times) < requested.since - _FAR or min(times) > requested.until + _FAR
    if far:
        for form, entry in entries:
            gathered[form].within(entry)
    return far


def _sampled(block: bytes) -> Iterator[bytes]:
    """The first and the last line of a block, and some between."""
    if len(block) < _SAMPLES * formats.MAX_LINE:
        return
    for place in range(_SAMPLES):
        start = block.rfind(b"\n", 0, len(block) * place // _SAMPLES) + 1
        yield block[start : block.find(b"\n", start) + 1 or len(block)]
    yield block[block.rfind(b"\n", 0, len(block) - 1) + 1 :]


def server_subject(artifact: Artifact) -> str:
    """`server/access.log`."""
    return f"server/{clean(artifact.group, 100)}"
