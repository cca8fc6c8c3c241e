"""Event files of TensorBoard (`events.out.tfevents.*`): scalars and histograms that name a latency, a queue, a batch.

A file is a row of records, each with its length; one that is still written ends within a record. The newest writers
put numbers into tensors, the others into fields of their own.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from latdoctor.collectors.documents import panel_series
from latdoctor.collectors.documents.load_result import file_name
from latdoctor.collectors.documents.panel_series import duration_factor, unit_of_name
from latdoctor.collectors.documents.protobuf_wire import double, fields, numbers, single, text
from latdoctor.collectors.documents.text_format import Section, TextFormat
from latdoctor.evidence.model import Bucket, Distribution, Evidence, Subject, Window
from latdoctor.sanitize import clean

_HEADER, _CHECK = 12, 4  # bytes before and after the data of a record: its length and checksums
_MAX_RECORDS, _MAX_TAGS = 1_000_000, 2_000
_FLOAT, _DOUBLE = 1, 2  # types of tensors
_BATCH = re.compile(r"batch[ _/-]?size", re.IGNORECASE)
_LATENCY = re.compile(r"latenc|response[ _]time|\be2e\b|duration", re.IGNORECASE)


@dataclass(slots=True)
class _Tags:
    """The scalars and the last histogram of each tag, by unix seconds."""

    scalars: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    histograms: dict[str, tuple[float, tuple[Bucket, ...], float | None]] = field(default_factory=dict)


def read(section: Section) -> Evidence:
    """The evidence of the tags that say what they measure. Raises ValueError."""
    tags = _Tags()
    for record in _records(section.content):
        _event(record, tags)
    named = {
        re.sub(r"[/_.-]+", " ", clean(name, 120)) + _unit(name): [(time, value, "") for time, value in points]
        for name, points in tags.scalars.items()
    }
    scalars = panel_series.evidence(section, {name: cells for name, cells in named.items() if cells})
    histograms = tuple(_distributions(section, tags))
    if not scalars.readings and not histograms:
        names = ", ".join(clean(name, 60) for name in [*tags.scalars, *tags.histograms][:5]) or "there is none"
        raise ValueError(f"none of its tags says what it measures ({names})")
    subjects = tuple(Subject(name) for name in dict.fromkeys(one.subject for one in histograms))
    # Training writes hundreds of scalars that are none of a service: they are no gap.
    found = Evidence(subjects=scalars.subjects, readings=scalars.readings, series=scalars.series)
    return Evidence.merge([found, Evidence(subjects=subjects, distributions=histograms)])


def _unit(name: str) -> str:
    unit = unit_of_name(name)
    return f" ({unit})" if unit else ""


def _records(content: bytes) -> Iterator[bytes]:
    position = 0
    for _ in range(_MAX_RECORDS):
        if position + _HEADER > len(content):
            return
        (size,) = struct.unpack_from("<Q", content, position)
        begin = position + _HEADER
        if begin + size + _CHECK > len(content):
            return  # still being written, or cut
        yield content[begin : begin + size]
        position = begin + size + _CHECK


def _event(record: bytes, tags: _Tags) -> None:
    time = math.nan
    for number, value in fields(record):
        if number == 1:
            time = double(value)
        elif number == 5 and isinstance(value, bytes) and math.isfinite(time):
            for which, one in fields(value):
                if which == 1 and isinstance(one, bytes):
                    _value(one, time, tags)


def _value(message: bytes, time: float, tags: _Tags) -> None:
    """One tag of a summary."""
    found: Mapping[int, int | bytes] = dict(fields(message))
    tag = text(found.get(1, b""))
    if not tag or len(tags.scalars) + len(tags.histograms) > _MAX_TAGS:
        return
    if 2 in found:
        _scalar(tag, time, single(found[2]), tags)
    elif isinstance(histogram := found.get(5), bytes):
        buckets, total = _histogram(histogram)
        if buckets:
            tags.histograms[tag] = (time, buckets, total)
    elif isinstance(tensor := found.get(8), bytes):
        values = _tensor(tensor)
        if len(values) == 1:
            _scalar(tag, time, values[0], tags)
        elif values and len(values) % 3 == 0:  # rows of left edge, right edge, count
            rows = zip(values[::3], values[1::3], values[2::3], strict=True)
            buckets = tuple(Bucket(low, high, count) for low, high, count in rows if count > 0 and low <= high)
            if buckets:
                tags.histograms[tag] = (time, buckets, None)


def _scalar(tag: str, time: float, value: float, tags: _Tags) -> None:
    if math.isfinite(value):
        tags.scalars.setdefault(tag, []).append((time, value))


def _tensor(message: bytes) -> tuple[float, ...]:
    found = dict(fields(message))
    size = {_FLOAT: 4, _DOUBLE: 8}.get(int(kind) if isinstance(kind := found.get(1, 0), int) else 0)
    if size is None:
        return ()
    content = found.get(4, found.get(5 if size == 4 else 6))
    if not isinstance(content, bytes):
        return ()
    return numbers(content, size)


def _histogram(message: bytes) -> tuple[tuple[Bucket, ...], float | None]:
    """The buckets and the sum; the outermost limits are those of the smallest and the largest value."""
    found = dict(fields(message))
    least, most = (double(found[number]) if number in found else 0.0 for number in (1, 2))
    limits, counts = (numbers(found.get(number, b""), 8) for number in (6, 7))
    total = double(found[4]) if 4 in found else None
    buckets, low = [], least
    for limit, count in zip(limits, counts, strict=False):
        high = min(max(limit, least), most)
        if count > 0 and low <= high:
            buckets.append(Bucket(low, high, count))
        low = max(low, high)
    return tuple(buckets), total


def _distributions(section: Section, tags: _Tags) -> Iterator[Distribution]:
    """The last histogram of the first tag for each signal."""
    seen: set[str] = set()
    for tag, (time, buckets, total) in tags.histograms.items():
        signal, factor = _meaning(tag)
        if not signal or signal in seen or factor is None or any(one.low < 0 for one in buckets):
            continue
        seen.add(signal)
        scaled = tuple(Bucket(one.low * factor, one.high * factor, one.count) for one in buckets)
        origin = section.origin(place=f"histogram {clean(tag, 80)}")
        note = "the last histogram written" + ("" if signal == "batch.size" or _unit(tag) else "; taken as seconds")
        window = Window(None, time)
        whole = None if total is None else total * factor
        yield Distribution(signal, f"server/{file_name(section)}", scaled, origin, whole, window, note=note)


def _meaning(tag: str) -> tuple[str, float | None]:
    if _BATCH.search(tag):
        return "batch.size", 1.0
    if _LATENCY.search(tag):
        unit = unit_of_name(tag)
        return "latency", duration_factor(unit) if unit else 1.0
    return "", None


FORMAT = TextFormat(
    name="tensorboard",
    title="an event file of TensorBoard",
    begins=re.compile(r"\A[\s\S]{0,60}brain\.Event:\d"),
    read=read,
    provides=panel_series.NAMES | {"batch.size", "latency"},
    whole=True,
    binary=True,
)
