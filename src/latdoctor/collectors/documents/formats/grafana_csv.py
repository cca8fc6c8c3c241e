"""CSV that Grafana exports of a panel: times and a column for each series, or (older versions) a row for each point.

A column named after a Prometheus series is read as that; else its name must say what it measures. Values may have a
unit (`12.4 s`, `35 %`, `1.2 K`) and a decimal comma. Times without a zone are taken as UTC. A duration without a unit
is taken as seconds, as Prometheus metrics are, and its reading says so.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

from latdoctor.collectors.documents import panel_series
from latdoctor.collectors.documents.csv_rows import rows
from latdoctor.collectors.documents.load_result import file_name
from latdoctor.collectors.documents.metric_history import MetricSeries, evidence
from latdoctor.collectors.documents.panel_series import LARGE
from latdoctor.collectors.documents.text_format import Section, TextFormat
from latdoctor.dialects.loader import shipped_signals
from latdoctor.evidence.model import Evidence
from latdoctor.sanitize import clean

_SEPARATOR = re.compile(r"\A\ufeff?\s*sep=(.)\r?\n")
_SERIES = re.compile(r"(?P<name>[a-zA-Z_:][\w:]*)?\s*\{(?P<labels>[^{}]*)\}|(?P<bare>[a-z_]+:[\w:]+|[a-z]+_\w+)")
_LABEL = re.compile(r'(\w+)\s*=\s*"((?:[^"\\]|\\.)*)"')
_CELL = re.compile(r"(?P<number>[-+]?[\d.,'\u00a0\u202f ]*\d(?:e[-+]?\d+)?)\s*(?P<unit>[^\d\s].*)?")
_FORMS = ("%Y/%m/%d %H:%M:%S", "%Y/%m/%d %H:%M")
_DAY_FIRST = ("%d/%m/%Y %H:%M:%S", "%d.%m.%Y %H:%M:%S", "%d/%m/%Y %H:%M", "%d.%m.%Y %H:%M")
_MONTH_FIRST = ("%m/%d/%Y %H:%M:%S", "%m/%d/%Y %I:%M:%S %p", "%m/%d/%Y %H:%M")

Columns = Mapping[str, list[tuple[float, str]]]  # a column's name → its cells by unix seconds


def read(section: Section) -> Evidence:
    """The evidence of the columns. Raises ValueError where none is understood."""
    columns = _columns(section.text)
    exported, named = [], {}
    for name, texts in columns.items():
        cells = [(time, *split) for time, text in texts if (split := _split(text))]
        labels = _metric(name)
        if labels and cells:
            plain = [(time, value * LARGE.get(unit, 1.0)) for time, value, unit in cells]
            exported.append(MetricSeries(labels, plain))
        else:
            named[name] = cells
    parts: list[Evidence] = []
    if exported:
        try:
            parts.append(evidence(exported, section.artifact, file_name(section)))
        except ValueError:
            if not named:
                raise
    parts.append(panel_series.evidence(section, named))
    found = Evidence.merge(parts)
    if not found.readings:
        names = ", ".join(clean(name, 60) for name in list(columns)[:5])
        raise ValueError(f"the names of its columns do not say what they measure ({names})")
    return found


def _columns(text: str) -> Columns:
    marked = _SEPARATOR.match(text)
    rest = text[marked.end() :] if marked else text.removeprefix("\ufeff")
    head = rest.partition("\n")[0]
    delimiter = marked[1] if marked else max(",;\t", key=head.count)
    table = rows(rest, delimiter)
    heading = [cell.strip() for cell in table[0]] if table else [""]
    body = [row for row in table[1:] if len(row) >= 2]
    place = next((n for n, name in enumerate(heading) if name.lower() in _TIME_NAMES), 0)
    parse = _time_parser([row[place] for row in body if place < len(row)])
    found: dict[str, list[tuple[float, str]]] = {}
    if heading[0].lower() == "series" and "Value" in heading:
        for row in body:
            time = parse(row[place])
            if time is not None:  # a number with separators of thousands may be cut into several cells
                found.setdefault(row[0], []).append((time, ",".join(row[heading.index("Value") :])))
        return found
    for row in body:
        time = parse(row[place]) if place < len(row) else None
        for name, cell in zip(heading, row, strict=False):
            if time is not None and name != heading[place] and cell.strip():
                found.setdefault(name, []).append((time, cell))
    return found


_TIME_NAMES = ("time", "zeit", "fecha", "hora", "temps", "heure", "时间", "時間", "tiempo")


def _time_parser(texts: Sequence[str]) -> Callable[[str], float | None]:
    """A parser for the times of one file: the order of day and month is that which fits all of them."""
    sample = [_plain(text) for text in texts[:1000]]
    fits = (forms for forms in (_FORMS, _MONTH_FIRST, _DAY_FIRST) if all(_by(one, forms) is not None for one in sample))
    forms = next(fits, (*_FORMS, *_DAY_FIRST))
    return lambda text: _by(_plain(text), forms)


def _plain(text: str) -> str:
    return re.sub(r"[,\s\u00a0\u202f]+", " ", text.strip())


def _by(text: str, forms: Sequence[str]) -> float | None:
    """Unix seconds; seconds, milliseconds and ISO times, with a zone or without, are read in any file."""
    if re.fullmatch(r"\d{10}(?:\.\d+)?|\d{13}", text):
        return float(text) / (1e3 if len(text) == 13 else 1.0)
    if text[4:5] == "-":
        try:
            time = datetime.fromisoformat(text)
        except ValueError:
            return None
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
    for form in forms:
        try:
            return datetime.strptime(text, form).replace(tzinfo=UTC).timestamp()
        except ValueError:
            continue
    return None


def _metric(name: str) -> dict[str, str]:
    """The labels of a Prometheus series, its name among them; empty where the column is named otherwise."""
    found = _SERIES.fullmatch(name.strip())
    if not found:
        return {}
    labels = {key: value.replace('\\"', '"') for key, value in _LABEL.findall(found["labels"] or "")}
    metric = found["name"] or found["bare"] or labels.get("__name__", "")
    return {**labels, "__name__": metric} if metric else {}


def _split(cell: str) -> tuple[float, str] | None:
    """The number and unit of a cell; a comma is a decimal one where what follows is not a group of three digits."""
    found = _CELL.fullmatch(cell.strip())
    if not found:
        return None
    text = re.sub(r"['\u00a0\u202f ]", "", found["number"])
    if "," in text:
        grouped = re.fullmatch(r"[-+]?\d{1,3}(?:,\d{3})+(?:\.\d+)?", text)
        text = text.replace(",", "") if grouped else text.replace(".", "").replace(",", ".")
    try:
        return float(text), (found["unit"] or "").strip()
    except ValueError:
        return None


FORMAT = TextFormat(
    name="grafana-csv",
    title="a CSV export of Grafana",
    begins=re.compile(
        rf"\A\ufeff?(?:\s*sep=.\r?\n)?\"?(?:(?:{'|'.join(_TIME_NAMES)})\"?[,;\t]|series\"?[,;]\"?time\"?[,;]\"?value)",
        re.IGNORECASE,
    ),
    read=read,
    provides=frozenset(shipped_signals()) | panel_series.NAMES,
    whole=True,
)
