"""Which formats of requests a log is in, by a sample of its lines.

A log may mix requests with other output, so it is searched for the needles of every format. One line with a duration
is proof of a format that no other text has. Lines without a duration, and forms that other text may have, must be ten
of the sample or three in five.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from latdoctor.collectors.access_log import formats, proxy_errors
from latdoctor.collectors.access_log.formats import AccessLogFormat

_TRIED = 60  # lines at each of three places
_FOUND = 40  # lines with a needle, from the beginning and as many from the end
_PIECE = 256 << 10
_MOST_FORMATS = 3
_MUCH_LESS = (
    0.2  # share of the lines of the most frequent format; a format with durations has no fewer, or is not chosen
)


@dataclass(frozen=True, slots=True)
class Recognised:
    """`forms`: the one that counts first; the others say only what it does not. `share`: of the lines tried, those that
    are requests or lines of a proxy's error log, which `errors` says there are.
    """

    forms: tuple[AccessLogFormat, ...]
    share: float
    errors: bool = False


@dataclass(frozen=True, slots=True)
class _Candidate:
    form: AccessLogFormat
    lines: float  # estimated number in the log
    timed: bool


def recognise_forms(content: bytes) -> Recognised:
    """The formats of the requests in `content`, and the share of its lines that they are."""
    tried = sampled(content)
    found = [one for form in formats.FORMATS if (one := _candidate(form, content, tried)) is not None]
    most = max((one.lines for one in found), default=0.0)
    found.sort(key=lambda one: (one.timed and one.lines >= _MUCH_LESS * most, one.lines), reverse=True)
    forms = tuple(one.form for one in found[:_MOST_FORMATS])
    read = sum(proxy_errors.read(line) is not None or any(form.read(line) for form in forms) for line in tried)
    errors = any(mark in content for mark in proxy_errors.MARKS) and any(
        (line := proxy_errors.read(text)) and line.failure
        for mark in proxy_errors.MARKS
        for text in _with(content, mark)
    )
    return Recognised(forms, read / len(tried) if tried else 0.0, errors)


def sampled(content: bytes) -> list[str]:
    """Lines from the beginning, the middle and the end."""
    found: list[str] = []
    for start in dict.fromkeys((0, len(content) // 2, max(0, len(content) - _PIECE))):
        piece = content[start : start + _PIECE].split(b"\n")
        whole = piece[1 if start else 0 : -1 if start + _PIECE < len(content) else None]
        found.extend(text for raw in whole[:_TRIED] if (text := formats.line_text(raw)) is not None)
    return found


def _candidate(form: AccessLogFormat, content: bytes, tried: Sequence[str]) -> _Candidate | None:
    of_tried = [entry for line in tried if (entry := form.read(line)) is not None]
    lines = list(dict.fromkeys(text for needle in form.needles for text in _with(content, needle)))
    of_found = [entry for line in lines if (entry := form.read(line)) is not None]
    entries = [*of_tried, *of_found]
    if not entries:
        return None
    timed = any(entry.duration is not None or entry.unit_unknown for entry in entries)
    many = len(of_tried) >= formats.SHARE * len(tried) or max(len(of_tried), len(of_found)) >= formats.ENOUGH
    proof = form.sure and any(entry.duration is not None and not entry.is_probe for entry in entries)
    if not (many or proof):
        return None
    total = content.count(b"\n") + 1
    estimates = [total * len(of_tried) / len(tried)] if tried else []
    if lines:
        estimates.append(sum(content.count(needle) for needle in form.needles) * len(of_found) / len(lines))
    return _Candidate(form, max(len(of_tried), len(of_found), min(estimates, default=0.0)), timed)


def _with(content: bytes, needle: bytes) -> Iterator[str]:
    """The first and the last lines that contain `needle`, a needle once in each."""
    place = 0
    for _ in range(_FOUND):
        place = content.find(needle, place)
        if place < 0:
            return
        start, place = _line_around(content, place)
        if (text := formats.line_text(content[start:place])) is not None:
            yield text
    end = len(content)
    for _ in range(_FOUND):
        end = content.rfind(needle, 0, end)
        if end < place:
            return
        end, after = _line_around(content, end)
        if (text := formats.line_text(content[end:after])) is not None:
            yield text


def _line_around(content: bytes, place: int) -> tuple[int, int]:
    """The beginning and the end of the line around `place`; no further than the longest line that is read."""
    furthest = max(0, place - formats.MAX_LINE)
    start = max(content.rfind(b"\n", furthest, place) + 1, furthest)
    end = content.find(b"\n", place, place + formats.MAX_LINE)
    return (start if start else max(0, place - formats.MAX_LINE)), (
        end if end >= 0 else min(len(content), place + formats.MAX_LINE)
    )
