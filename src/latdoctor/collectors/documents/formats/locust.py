"""Results of Locust: the tables that it prints, and the CSV files `*_stats.csv` and `*_stats_history.csv`.

Times are milliseconds; Locust rounds percentiles to two digits. Where requests have several names, each is a client of
its own beside the aggregate: quick health checks would otherwise hide slow answers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from latdoctor.collectors.documents import load_result
from latdoctor.collectors.documents.csv_rows import records
from latdoctor.collectors.documents.load_result import LoadResult, subject_name
from latdoctor.collectors.documents.quantity_text import number
from latdoctor.collectors.documents.text_format import Section, TextFormat
from latdoctor.evidence.model import Evidence, Reading, Series, Subject, Window

_STATS = re.compile(
    r"^\s*(?P<name>\S.*?)\s+(?P<count>\d+)\s+(?P<failed>\d+)\([\d.]+%\)\s*\|?"
    r"\s+(?P<avg>\d+)\s+(?P<min>\d+)\s+(?P<max>\d+)\s+(?:\|\s+)?(?P<med>\d+)\s*\|?\s+(?P<rate>[\d.]+)"
)
_PERCENTILE_ROW = re.compile(r"^\s*(?P<name>\S.*?)(?P<values>(?:\s+\d+)+)\s*$")
_PERCENT = re.compile(r"([\d.]+)%")
_TOTAL = ("aggregated", "total")
_MAX_NAMES = 20
_MIN_POINTS = 2


def read(section: Section) -> Evidence:
    """The evidence of the tables. Raises ValueError where they have no row."""
    rows: dict[str, LoadResult] = {}
    percents: list[str] = []
    for line in section.text.splitlines():
        if "%" in line and (heading := _PERCENT.findall(line)) and "#" in line:
            percents = heading
        elif found := _STATS.match(line):
            rows[_name(found["name"])] = _result(
                {
                    "Request Count": found["count"],
                    "Failure Count": found["failed"],
                    "Average Response Time": found["avg"],
                    "Max Response Time": found["max"],
                    "Median Response Time": found["med"],
                    "Requests/s": found["rate"],
                }
            )
        elif percents and (row := _PERCENTILE_ROW.match(line)) and _name(row["name"]) in rows:
            timing = rows[_name(row["name"])].timing()
            for percent, value in zip(percents, row["values"].split(), strict=False):
                timing.put(f"{percent}%", _ms(value))
    return _evidence(section, rows)


def read_csv(section: Section) -> Evidence:
    """The evidence of `*_stats.csv`. Raises ValueError where it has no row."""
    rows = {
        _name(f"{row.get('Type') or row.get('Method') or ''} {row.get('Name') or ''}"): _result(row)
        for row in records(section.text)
        if number(row.get("Request Count", row.get("# requests", ""))) is not None
    }
    return _evidence(section, rows)


def _name(text: str) -> str:
    words = text.split()
    if words and words[-1].lower() in _TOTAL:
        return ""
    return " ".join(word for word in words if word != "None")


def _result(row: Mapping[str, str]) -> LoadResult:
    """One row, by the columns of the CSV; older versions name some with a small or another word."""
    cells = {(name or "").strip().lower(): value for name, value in row.items() if isinstance(value, str)}
    result = LoadResult(
        requests=number(cells.get("request count", cells.get("# requests", ""))),
        failed=number(cells.get("failure count", cells.get("# failures", ""))),
        request_rate=number(cells.get("requests/s", "")),
    )
    timing = result.timing()
    for name, value in cells.items():
        if name.endswith("response time") and not name.startswith(("min", "total")):
            timing.put(name.removesuffix(" response time"), _ms(value))
        elif name.endswith("%"):
            timing.put(name, _ms(value))
    return result


def _ms(text: str) -> float | None:
    value = number(text)
    return None if value is None else value / 1e3


def _evidence(section: Section, rows: Mapping[str, LoadResult]) -> Evidence:
    """The aggregate, and the rows beside it where there are several."""
    if not rows:
        raise ValueError("it has no row")
    single = {name: one for name, one in rows.items() if name}
    if "" not in rows and len(single) == 1:
        return load_result.evidence(section, single.values())
    results = [rows[""]] if "" in rows else []
    if len(single) > 1:
        for name, one in list(single.items())[:_MAX_NAMES]:
            one.label = name
            results.append(one)
    return load_result.evidence(section, results)


_HISTORY = {"50%": "client.latency.p50", "95%": "client.latency.p95", "99%": "client.latency.p99"}


def read_history(section: Section) -> Evidence:
    """The aggregate over time: percentiles of the last seconds of each moment, and rates. Raises ValueError."""
    rows = [
        {(name or "").strip(): value for name, value in row.items() if isinstance(value, str)}
        for row in records(section.text)
    ]
    rows = [row for row in rows if row.get("Name", "").lower() in _TOTAL and number(row.get("Timestamp", ""))]
    if not rows:
        raise ValueError("it has no row of the aggregate with a time")
    subject = subject_name(section, "client")
    origin = section.origin(place="the aggregate, row by row")
    series = list(_series(rows, subject, section))
    last = rows[-1]
    total = LoadResult(
        requests=number(last.get("Total Request Count", "")), failed=number(last.get("Total Failure Count", ""))
    )
    timing = total.timing()
    for name in ("Average", "Median", "Max"):
        timing.put(name, _ms(last.get(f"Total {name} Response Time", "")))
    window = Window(number(rows[0]["Timestamp"]), number(last["Timestamp"]))
    readings = [
        Reading(one.signal, subject, one.values[-1], origin, window, note="the last moment of the run")
        for one in series
        if one.signal in _HISTORY.values()
    ]
    found = Evidence(subjects=(Subject(subject),), readings=tuple(readings), series=tuple(series))
    if not total.known or not total.requests:
        return found
    known = {one.signal for one in readings}
    rest = load_result.evidence(section, [total])
    others = tuple(one for one in rest.readings if one.signal not in known)
    return Evidence.merge([found, Evidence(subjects=rest.subjects, readings=others)])


def _series(rows: Sequence[Mapping[str, str]], subject: str, section: Section) -> Iterator[Series]:
    columns = [(column, signal, 1e-3) for column, signal in _HISTORY.items()]
    for column, signal, factor in (*columns, ("Requests/s", "client.request_rate", 1.0)):
        points: dict[float, float] = {}
        for row in rows:
            time, value = number(row["Timestamp"]), number(row.get(column, ""))
            if time is not None and value is not None:
                points[time] = value * factor
        ordered = sorted(points.items())
        if len(ordered) >= _MIN_POINTS:
            times, values = zip(*ordered, strict=True)
            yield Series(signal, subject, times, values, section.origin(place=f"column {column}"))


TEXT = TextFormat(
    name="locust",
    title="the tables of Locust",
    begins=re.compile(r"^\s*(?:Type\s+)?Name\s+# reqs\s+# fails\b"),
    read=read,
    provides=load_result.SIGNALS,
    contains_times=True,
    cumulative=True,
)
CSV = TextFormat(
    name="locust-csv",
    title="the statistics of Locust",
    begins=re.compile(r'^\ufeff?"?(?:Type|Method)"?,"?Name"?,"?(?:Request Count|# requests)"?,'),
    read=read_csv,
    provides=load_result.SIGNALS,
    contains_times=True,
)
HISTORY = TextFormat(
    name="locust-history",
    title="the history of Locust",
    begins=re.compile(r'\A\ufeff?"?Timestamp"?,"?User Count"?,"?Type"?,"?Name"?,'),
    read=read_history,
    provides=load_result.SIGNALS,
    whole=True,
)
