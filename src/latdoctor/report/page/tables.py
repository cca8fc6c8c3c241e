"""The numbers behind a chart: the table below it, and what is said of it to whoever hears the page."""

from __future__ import annotations

import datetime

from latdoctor.report.page.model import Account, Bars, Chart, Lines, Table, Waterfall
from latdoctor.units import format_value

NOT_SEEN = "not seen"
ROWS = 300  # of a chart over time: more are thinned out, and the table says so


def table(chart: Chart) -> Table:
    """The same as rows to be read."""
    match chart:
        case Lines():
            return _table_of_lines(chart)
        case Bars():
            columns = (chart.over, *(group.name for group in chart.groups))
            rows = tuple(
                (name, *(shown(group.values[place], chart.dimension) for group in chart.groups))
                for place, name in enumerate(chart.categories)
            )
            return Table(chart.title, columns, rows, numbers=tuple(range(1, len(columns))))
        case Waterfall():
            rows = tuple(
                (course.name, piece.name, shown(piece.length, chart.dimension))
                for course in chart.courses
                for piece in course.pieces
            )
            return Table(chart.title, ("when", "stage", "mean"), rows, numbers=(2,))
        case Account():
            rows = tuple((row.says, signed(row.points)) for row in chart.rows)
            total = sum(row.points for row in chart.rows)
            return Table(chart.title, ("what", "points"), (*rows, ("total", signed(total))), numbers=(1,))


def signed(points: int) -> str:
    return f"{points:+d}".replace("-", "−")


def shown(value: float | None, dimension: str) -> str:
    return NOT_SEEN if value is None else format_value(value, dimension)


def spoken(chart: Chart) -> str:
    """What the chart shows, for whoever hears the page."""
    match chart:
        case Lines():
            told = "; ".join(_told(line.name, line.values, chart.dimension) for line in chart.lines)
            return f"{chart.title}, over time: {told}"
        case Bars():
            told = "; ".join(_told(group.name, group.values, chart.dimension) for group in chart.groups)
            return f"{chart.title}, by {chart.over}: {told}"
        case Waterfall():
            return f"{chart.title}: " + "; ".join(
                f"{course.name} {format_value(course.length, chart.dimension)}" for course in chart.courses
            )
        case Account():
            return f"{chart.title}: {signed(sum(row.points for row in chart.rows))} points in {len(chart.rows)} rows"


def _told(name: str, values: tuple[float | None, ...], dimension: str) -> str:
    seen = [value for value in values if value is not None]
    if not seen:
        return f"{name} {NOT_SEEN}"
    return f"{name} from {format_value(min(seen), dimension)} to {format_value(max(seen), dimension)}"


def _table_of_lines(chart: Lines) -> Table:
    """One row for each time at which any line has a value."""
    by_time: dict[float, dict[int, float | None]] = {}
    for place, line in enumerate(chart.lines):
        for time, value in zip(line.times, line.values, strict=True):
            by_time.setdefault(time, {})[place] = value
    times = sorted(by_time)
    step = -(-len(times) // ROWS) or 1
    rows = tuple(
        (clock(time), *(shown(by_time[time].get(place), chart.dimension) for place in range(len(chart.lines))))
        for time in times[::step]
    )
    columns = ("time (UTC)", *(line.name for line in chart.lines))
    note = f"every {step}th of {len(times)} times" if step > 1 else ""
    return Table(chart.title, columns, rows, numbers=tuple(range(1, len(columns))), note=note)


def clock(time: float) -> str:
    """`2026-11-22 07:12:03` in UTC."""
    try:
        return datetime.datetime.fromtimestamp(time, tz=datetime.UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):  # a source may tell of any number
        return "a time that makes no sense"
