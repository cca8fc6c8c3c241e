"""Parser of the Prometheus text format: bytes → MetricsPage. A bad line costs that line, not the page."""

from __future__ import annotations

import re
from functools import lru_cache

from latdoctor.dialects.metrics_page_model import BadLine, MetricSample, MetricsPage
from latdoctor.errors import SourceError
from latdoctor.evidence.model import Labels
from latdoctor.gap_code import GapCode

MAX_BYTES = 64 << 20
MAX_LINES = 400_000
# The parser scans every character, and those in labels several times.
MAX_LINE = 8192

_TYPE = re.compile(r"^[ \t]*#[ \t]+TYPE[ \t]+(\S+)[ \t]+(\w+)[ \t]*$", re.MULTILINE)
_NAME = re.compile(r"\s*([a-zA-Z_:][a-zA-Z0-9_:]*)")
_LABEL = r'(?!__)[a-zA-Z_][a-zA-Z0-9_]*+="[^"\\]*+"'
_PLAIN_LINE = re.compile(
    rf"([a-zA-Z_:][a-zA-Z0-9_:]*+)(?:\{{((?:{_LABEL}(?:,{_LABEL})*+,?)?)\}})?"
    r" +([+-]?(?:[0-9]{1,40}(?:\.[0-9]{0,40})?(?:[eE][+-]?[0-9]{1,4})?|Inf)|NaN)(?: +(-?[0-9]{1,15}))?"
)
_PLAIN_LABEL = re.compile(r'([a-zA-Z0-9_]++)="([^"\\]*+)"')
_PLAIN_COMMENT = re.compile(
    r"#[ \t]+(?:TYPE[ \t]+[a-zA-Z_:][a-zA-Z0-9_:]*+[ \t]+untyped|HELP[ \t]+[a-zA-Z_:][a-zA-Z0-9_:]*+(?:[ \t].*)?)"
    r"|#(?!.*(?:TYPE|HELP)).*"
)
_WHOLE = re.compile(r"[+-]?[0-9]+")
# A page may begin with {"a.quoted.name"}; JSON has a colon after it.
_MARKUP = re.compile(rb"\s*(?:<[!?a-zA-Z]|\[|\{\s*(?:\}|\"[^\"]*\"\s*:))")


def parse(raw: bytes, where: str) -> MetricsPage:
    """Parse the page in `raw`; unreadable lines are left out and listed in `bad_lines`.

    Raises SourceError, naming `where`, for anything but a metrics page (HTML, JSON, binary, empty) and for more than
    MAX_BYTES or MAX_LINES.
    """
    _refuse(raw, where)
    text = raw.decode("utf-8", errors="replace").replace("\r\n", "\n")
    lines = text.split("\n")
    if len(lines) > MAX_LINES:
        raise SourceError(
            f"{len(lines)} lines, more than the limit of {MAX_LINES}",
            where=where,
            next_step="configure the exporter to expose fewer series",
        )
    kinds = dict(_TYPE.findall(text))
    # The parser renames samples of counters to end in _total; dialects need the names of the page.
    plain = [_TYPE.sub(r"# TYPE \1 untyped", line) if line.lstrip().startswith("#") else line for line in lines]
    bad = tuple(BadLine(number, _name(line)) for number, line in enumerate(plain, 1) if len(line) > MAX_LINE)
    for entry in bad:
        plain[entry.line - 1] = ""
    try:
        samples = _samples("\n".join(plain))
    except (ValueError, IndexError, OverflowError):
        samples, more = _line_by_line(plain)
        bad = tuple(sorted((*bad, *more), key=lambda entry: entry.line))
    unended = _unended(lines)
    if unended and unended not in bad and lines[-1].lstrip().startswith("#"):
        bad = (*bad, unended)
    if not samples and (bad or not kinds):
        raise SourceError("is not a metrics page", where=where, next_step="use the address that Prometheus scrapes")
    return MetricsPage(samples, kinds, bad, unended)


def _unended(lines: list[str]) -> BadLine | None:
    """The last line if it lacks the newline that the format requires; "# EOF" marks a complete page."""
    last = lines[-1]
    return None if not last.strip() or last.strip() == "# EOF" else BadLine(len(lines), _name(last))


def _refuse(raw: bytes, where: str) -> None:
    if len(raw) > MAX_BYTES:
        raise SourceError(
            f"more than {MAX_BYTES >> 20} MiB", where=where, next_step="pass a smaller page", code=GapCode.TOO_LARGE
        )
    if not raw.strip():
        raise SourceError("is empty", where=where, next_step="check that the exporter is up", code=GapCode.EMPTY)
    if _MARKUP.match(raw[:256]) or b"\x00" in raw[:4096]:
        raise SourceError(
            "is HTML, JSON or binary data, not a metrics page",
            where=where,
            next_step="use the address that Prometheus scrapes, such as http://HOST:PORT/metrics",
        )


def _samples(text: str) -> dict[str, tuple[MetricSample, ...]]:
    """Raises ValueError, IndexError or OverflowError (from the parser) if a line is invalid."""
    plain = _plain_samples(text)
    return _reference_samples(text) if plain is None else plain


def _plain_samples(text: str) -> dict[str, tuple[MetricSample, ...]] | None:
    """The samples of a page whose lines all have the usual form, with the result of the reference parser; else None.

    A tenth of its time, and nothing to import: no escape in a label, no exemplar, numbers of ordinary length.
    """
    found: dict[str, list[MetricSample]] = {}
    for raw in text.split("\n"):
        line = raw.strip()
        match = _PLAIN_LINE.fullmatch(line)
        if match is None:
            if line and not _PLAIN_COMMENT.fullmatch(line):
                return None
            continue
        name, listed, number, timestamp = match.groups()
        labels = _plain_labels(listed) if listed else ()
        if labels is None:
            return None
        whole = _WHOLE.fullmatch(number) is not None
        value = float(int(number)) if whole else float(number)
        at = int(timestamp) / 1000 if timestamp else None
        found.setdefault(name, []).append(MetricSample(labels, value, whole, at))
    return {name: tuple(samples) for name, samples in found.items()}


@lru_cache(maxsize=1 << 14)
def _plain_labels(listed: str) -> Labels | None:
    """Labels sorted by name; None if one is listed twice. The pages of one server repeat them."""
    pairs = _PLAIN_LABEL.findall(listed)
    return tuple(sorted(pairs)) if len({name for name, _ in pairs}) == len(pairs) else None


def _reference_samples(text: str) -> dict[str, tuple[MetricSample, ...]]:
    from prometheus_client.parser import text_string_to_metric_families

    found: dict[str, list[MetricSample]] = {}
    for family in text_string_to_metric_families(text):
        for name, labels, value, timestamp, *_ in family.samples:
            kept = tuple(sorted(labels.items()))
            whole = isinstance(value, int)
            at = None if timestamp is None else float(timestamp)
            found.setdefault(name, []).append(MetricSample(kept, float(value), whole, at))
    return {name: tuple(samples) for name, samples in found.items()}


def _line_by_line(lines: list[str]) -> tuple[dict[str, tuple[MetricSample, ...]], tuple[BadLine, ...]]:
    """The same for a page with invalid lines: each is tried alone, and the valid ones are parsed together."""
    bad: list[BadLine] = []
    good: list[str] = []
    for number, line in enumerate(lines, 1):
        try:
            _samples(line)
        except (ValueError, IndexError, OverflowError):
            bad.append(BadLine(number, _name(line)))
        else:
            good.append(line)
    return _samples("\n".join(good)), tuple(bad)


def _name(line: str) -> str:
    found = _NAME.match(line)
    return found[1] if found else ""
