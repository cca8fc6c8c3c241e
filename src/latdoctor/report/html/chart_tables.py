"""The numbers of a chart as a table, and in one sentence for screen readers."""

from __future__ import annotations

import datetime
from collections.abc import Sequence

from latdoctor.report.html.page_model import Bars, Chart, Lines, ScoreBreakdown, Table, Waterfall
from latdoctor.units import format_value

NOT_MEASURED = "not measured"
_INVALID = "invalid time"
MAX_ROWS = 300  # of a chart over time: more are thinned out, and the table notes it


def table(chart: Chart) -> Table:
    """All numbers of the chart; over time those of its whole range."""
    match chart:
        case Lines():
            return _lines_table(chart.whole or chart)
        case Bars():
            columns = (chart.axis, *(group.name for group in chart.groups))
            rows = tuple(
                (name, *(shown(group.values[place], chart.dimension) for group in chart.groups))
                for place, name in enumerate(chart.categories)
            )
            return Table(chart.title, columns, rows, numbers=tuple(range(1, len(columns))))
        case Waterfall():
            rows = tuple(
                (track.name, stage.name, shown(stage.length, chart.dimension))
                for track in chart.tracks
                for stage in track.stages
            )
            return Table(chart.title, ("when", "stage", "mean"), rows, numbers=(2,))
        case ScoreBreakdown():
            rows = tuple((row.message, signed(row.points)) for row in chart.rows)
            total = sum(row.points for row in chart.rows)
            return Table(chart.title, ("evidence", "points"), (*rows, ("total", signed(total))), numbers=(1,))


def _lines_table(chart: Lines) -> Table:
    """One row for each time at which any line has a value."""
    by_time: dict[float, dict[int, float | None]] = {}
    for place, line in enumerate(chart.lines):
        for time, value in zip(line.times, line.values, strict=True):
            by_time.setdefault(time, {})[place] = value
    times = sorted(by_time)
    step = -(-len(times) // MAX_ROWS) or 1
    rows = tuple(
        (clock(time), *(shown(by_time[time].get(place), chart.dimension) for place in range(len(chart.lines))))
        for time in times[::step]
    )
    columns = ("time (UTC)", *(line.name for line in chart.lines))
    note = f"every {step}th of {len(times)} times" if step > 1 else ""
    return Table(chart.title, columns, rows, numbers=tuple(range(1, len(columns))), note=note)


def summary(chart: Chart) -> str:
    """What the chart shows, in one sentence."""
    match chart:
        case Lines():
            ranges = [_range(line.name, line.values, chart.dimension) for line in chart.lines]
            ranges += [f"{one.name} {shown(one.value, chart.dimension)}" for one in chart.highlights]
            return f"{chart.title}, over time: {'; '.join(ranges)}"
        case Bars():
            ranges = [_range(group.name, group.values, chart.dimension) for group in chart.groups]
            return f"{chart.title}, by {chart.axis}: {'; '.join(ranges)}"
        case Waterfall():
            totals = (f"{track.name} {format_value(track.length, chart.dimension)}" for track in chart.tracks)
            return f"{chart.title}: {'; '.join(totals)}"
        case ScoreBreakdown():
            return f"{chart.title}: {signed(sum(row.points for row in chart.rows))} points in {len(chart.rows)} rows"


def _range(name: str, values: Sequence[float | None], dimension: str) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return f"{name} {NOT_MEASURED}"
    return f"{name} from {format_value(min(known), dimension)} to {format_value(max(known), dimension)}"


def signed(points: int) -> str:
    """`+15`, `−2`."""
    return f"{points:+d}".replace("-", "−")


def shown(value: float | None, dimension: str) -> str:
    """A value with its unit."""
    return NOT_MEASURED if value is None else format_value(value, dimension)


def clock(time: float) -> str:
    """`2026-11-22 07:12:03` in UTC."""
    try:
        return datetime.datetime.fromtimestamp(time, tz=datetime.UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):  # a source may contain any number
        return _INVALID


def time_of_day(time: float, day_of: float | None = None) -> str:
    """`07:12:03`; with the day where that differs from the day of `day_of`."""
    moment = clock(time)
    other_day = day_of is not None and clock(day_of)[:10] != moment[:10]
    return moment if other_day or moment == _INVALID else moment[11:]
