"""The HTTP API's JSON, typed: vectors and matrices. Any bytes give an answer or a SourceError."""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec
from msgspec import Struct

from latdoctor.decoding import UNDECODABLE
from latdoctor.errors import SourceError
from latdoctor.text import clean

MAX_BYTES = 8 << 20  # of one answer; unpacked it takes about ten times that
MAX_SERIES = 20_000
_NARROW = "narrow it: --select '{job=\"…\"}'"
_NOT_IT = "give the address of a Prometheus server, such as http://HOST:9090"


class Line(Struct, frozen=True):
    """One series of an answer: its labels, and its values at ascending times (unix seconds).

    `whole` tells of the last value that it was written without a fraction.
    """

    labels: Mapping[str, str]
    times: tuple[float, ...]
    values: tuple[float, ...]
    whole: bool = False


class Answer(Struct, frozen=True):
    """What the server said, and what it warned of (a store that did not answer, so that a part is missing)."""

    lines: tuple[Line, ...]
    warnings: tuple[str, ...] = ()


class _Series(Struct, frozen=True):
    metric: dict[str, str] = {}
    value: tuple[float, str] | None = None
    values: list[tuple[float, str]] = []


class _Data(Struct, frozen=True):
    resultType: str  # noqa: N815 — the API's own name
    result: list[_Series] = []


class _Answer(Struct, frozen=True):
    status: str
    data: _Data | None = None
    error: str = ""
    warnings: list[str] = []


def read(raw: bytes, where: str) -> Answer:
    """The series of an answer. Raises SourceError for what is none, and for an answer that tells an error."""
    if len(raw) > MAX_BYTES:
        raise SourceError(f"an answer of more than {MAX_BYTES >> 20} MiB", where=where, next_step=_NARROW)
    try:
        said = msgspec.json.decode(raw, type=_Answer)
    except UNDECODABLE as error:
        raise SourceError("no answer of a Prometheus server", where=where, next_step=_NOT_IT) from error
    if said.status != "success" or said.data is None:
        raise SourceError(f"it says: {clean(said.error, 200) or 'no result'}", where=where, next_step=_NARROW)
    if len(said.data.result) > MAX_SERIES:
        reason = f"an answer of {len(said.data.result)} series, more than the {MAX_SERIES} that are read at most"
        raise SourceError(reason, where=where, next_step=_NARROW)
    try:
        lines = tuple(_line(one) for one in said.data.result)
    except ValueError as error:
        raise SourceError("an answer with a value that is no number", where=where, next_step=_NOT_IT) from error
    return Answer(lines, tuple(clean(one, 200) for one in said.warnings[:5]))


def _line(one: _Series) -> Line:
    """Times that do not rise are put in order, and of two values for one time the later is taken. Raises ValueError."""
    told = one.values or ([one.value] if one.value else [])
    points = {time: text for time, text in told if math.isfinite(time)}
    times = tuple(sorted(points))
    texts = [points[time] for time in times]
    return Line(one.metric, times, tuple(float(text) for text in texts), bool(texts) and texts[-1].isdecimal())


def error_of(raw: bytes) -> str:
    """What a refusing server says in its answer; empty where it says nothing that can be read."""
    try:
        return clean(msgspec.json.decode(raw, type=_Answer).error, 200)
    except UNDECODABLE:
        return ""
