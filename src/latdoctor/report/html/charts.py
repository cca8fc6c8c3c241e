"""Charts as the charting library takes them: the options of ECharts.

Colours and numbers of an axis are left to `page.js`, which knows whether it is dark and how wide the screen is. A text
`@name` stands for one of them, under the keys that `page.js` looks at and where no text from outside stands.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterator, Sequence
from typing import Any

from latdoctor.report.html.document import (
    BYTES,
    CHANGED,
    DUE,
    HAPPENED,
    MENDED,
    UNDONE,
    Account,
    Bars,
    Chart,
    Course,
    Lines,
    Mark,
    Piece,
    Table,
    Waterfall,
)
from latdoctor.sanitize import clean
from latdoctor.units import format_value

Options = dict[str, Any]

_DASHES = ("solid", "dashed", "dotted")
_SYMBOLS = ("circle", "rect", "triangle", "diamond")
_MARKS = {  # colour and stroke of each kind, told apart without colours as well
    HAPPENED: ("@quiet", "dotted"),
    CHANGED: ("@change", "solid"),
    MENDED: ("@good", "solid"),
    UNDONE: ("@bad", "solid"),
    DUE: ("@quiet", "dashed"),
}
_WITH_NAMES = {"outerBoundsMode": "same", "outerBoundsContain": "axisLabel"}  # of an axis, within the edges
LEAST = 0.005  # of the longest way: shorter stages stand in the table only
_FEW = 40  # points up to which each is drawn as a symbol
_TEMPLATE = str.maketrans("{|}", "(/)")
_LONGEST = 300  # characters of a name


def options(chart: Chart) -> Options:
    """What the library draws."""
    match chart:
        case Lines():
            return _lines(chart)
        case Bars():
            return _bars(chart)
        case Waterfall():
            return _waterfall(chart)
        case Account():
            return _account(chart)


def rows(chart: Chart) -> int:
    """How many bars lie below each other; 0 where the height does not depend on them."""
    match chart:
        case Bars():
            return len(chart.categories) if chart.lying else 0
        case Waterfall():
            return len(_long_enough(chart))
        case Account():
            return len(chart.rows)
        case Lines():
            return 0


def _lines(chart: Lines) -> Options:
    points = max((len(line.times) for line in chart.lines), default=0)
    series: list[Options] = [
        {
            "type": "line",
            "name": _plain(line.name),
            "data": [[time * 1000, value] for time, value in zip(line.times, line.values, strict=True)],
            "lineStyle": {"type": _DASHES[place % len(_DASHES)], "width": 2},
            "symbol": _SYMBOLS[place % len(_SYMBOLS)],
            "symbolSize": 5,
            "showSymbol": points <= _FEW,
            "emphasis": {"disabled": True},
        }
        for place, line in enumerate(chart.lines)
    ]
    if series:
        series[0]["markLine"] = {
            "silent": True,
            "symbol": ["none", "none"],
            "animation": False,
            "data": [*_limits(chart), *_marks(chart.marks)],
        }
    return {
        **_common(chart.dimension, "axis"),
        "useUTC": True,
        "grid": {
            "left": 8,
            "right": 28,
            "top": 66 if chart.marks else 40,
            "bottom": 8,
            **_WITH_NAMES,
        },
        "xAxis": {"type": "time", "splitLine": {"show": False}, **_span(chart), "axisLabel": {"hideOverlap": True}},
        "yAxis": {**_axis(chart.dimension), **_reach(chart)},
        "series": series,
    }


def _span(chart: Lines) -> Options:
    """The axis holds every mark as well as every point."""
    times = [time for line in chart.lines for time in line.times] + [mark.time for mark in chart.marks]
    return {"min": min(times) * 1000, "max": max(times) * 1000} if times else {}


def _limits(chart: Lines) -> Iterator[Options]:
    for limit in chart.limits:
        message = f"{_plain(limit.name)} {format_value(limit.value, chart.dimension)}"
        yield {
            "yAxis": limit.value,
            "lineStyle": {"color": "@bad", "type": "dashed", "width": 1.5},
            "label": {"formatter": message, "position": "insideStartTop", "color": "@bad"},
        }


def _marks(marks: tuple[Mark, ...]) -> Iterator[Options]:
    """The labels of marks stand on three levels, so that near ones do not cover each other."""
    for place, mark in enumerate(marks):
        color, stroke = _MARKS[mark.kind]
        yield {
            "xAxis": mark.time * 1000,
            "lineStyle": {"color": color, "type": stroke, "width": 1.5},
            "label": {
                "formatter": mark.label,
                "position": "end",
                "distance": 2 + 11 * (place % 3),
                "color": "@ink",
                "fontWeight": "bold",
                "fontSize": 11,
            },
        }


def _bars(chart: Bars) -> Options:
    several = len(chart.groups) > 1
    series: list[Options] = [
        {
            "type": "bar",
            "name": _plain(group.name),
            "data": list(group.values),
            "itemStyle": {"color": _color(group.color, place)},
            "barMaxWidth": 26,
            "barGap": "8%",
        }
        for place, group in enumerate(chart.groups)
    ]
    if chart.lying:
        for one in series:
            one |= {"barMaxWidth": 12, "label": _value_label(chart.dimension)}
        return _lying(chart.dimension, chart.categories, series)
    return {
        **_common(chart.dimension, "axis"),
        "legend": {"show": several, "top": 4, "left": 0, "type": "plain", "itemWidth": 12, "itemHeight": 12},
        "grid": {"left": 8, "right": 24, "top": 44 if several else 16, "bottom": 28, **_WITH_NAMES},
        "xAxis": {
            "type": "category",
            "data": [_plain(name) for name in chart.categories],
            "axisTick": {"show": False},
            "name": _plain(chart.over),
            "nameLocation": "middle",
            "nameGap": 28,
        },
        "yAxis": _axis(chart.dimension),
        "series": series,
    }


def _color(wanted: int, place: int) -> str:
    return f"@series{wanted or place % 6 + 1}"


def _waterfall(chart: Waterfall) -> Options:
    """Bars that begin where the one before them ends: the way there is drawn without a colour."""
    drawn = _long_enough(chart)
    several = len(chart.courses) > 1
    names = [f"{piece.name}, {course.name}" if several else piece.name for course, _, piece in drawn]
    colors = {course.name: _color(course.color, place) for place, course in enumerate(chart.courses)}
    series: list[Options] = [
        {
            "type": "bar",
            "stack": "way",
            "silent": True,
            "itemStyle": {"color": "transparent", "decal": "none"},
            "data": [sum(one.length for one in course.pieces[:place]) for course, place, _ in drawn],
        },
        {
            "type": "bar",
            "stack": "way",
            "name": "mean",
            "barMaxWidth": 12,
            "label": _value_label(chart.dimension),
            "data": [
                {"value": piece.length, "itemStyle": {"color": colors[course.name]}} for course, _, piece in drawn
            ],
        },
    ]
    return _lying(chart.dimension, names, series)


def _long_enough(chart: Waterfall) -> list[tuple[Course, int, Piece]]:
    longest = max((course.length for course in chart.courses), default=0.0)
    listed = [(course, place, piece) for course in chart.courses for place, piece in enumerate(course.pieces)]
    return [one for one in listed if one[2].length >= LEAST * longest]


def _account(chart: Account) -> Options:
    bars: Options = {
        "type": "bar",
        "name": "points",
        "barMaxWidth": 12,
        "label": _value_label("points"),
        "data": [
            {"value": row.points, "itemStyle": {"color": "@good" if row.points >= 0 else "@bad"}} for row in chart.rows
        ],
    }
    return _lying("points", [row.message for row in chart.rows], [bars])


def _lying(dimension: str, names: Sequence[str], series: Sequence[Options]) -> Options:
    """Bars from left to right, each below its name: so a long name has the whole width, on a phone as well."""
    label: Options = {"inside": True, "align": "left", "verticalAlign": "bottom", "color": "@ink", "interval": 0}
    label |= {"padding": [0, 0, 10, 0], "width": "@names", "overflow": "break", "lineHeight": 15, "margin": 0}
    return {
        **_common(dimension, "none"),
        "legend": {"show": False},
        "grid": {"left": 8, "right": 64, "top": 16, "bottom": 8, **_WITH_NAMES},
        "xAxis": _axis(dimension),
        "yAxis": {
            "type": "category",
            "inverse": True,
            "data": [_plain(name) for name in names],
            "axisTick": {"show": False},
            "axisLine": {"show": False, "onZero": False},
            "axisLabel": label,
            "z": 5,
        },
        "series": series,
    }


def _value_label(dimension: str) -> Options:
    return {"show": True, "position": "right", "formatter": f"@{dimension}", "color": "@ink"}


def _common(dimension: str, trigger: str) -> Options:
    return {
        "animation": False,
        "aria": {"enabled": True, "label": {"enabled": False}},
        "tooltip": {
            "show": trigger != "none",
            "trigger": "axis",
            "confine": True,
            # Drawn, not written as markup: no text from outside can become an element.
            "renderMode": "richText",
            "valueFormatter": f"@{dimension}",
        },
        "legend": {"top": 4, "left": 0, "type": "plain"},
    }


def _axis(dimension: str) -> Options:
    """An axis of values from zero on."""
    return {"type": "value", "axisLabel": {"formatter": f"@{dimension}"}, "splitNumber": 4}


def _reach(chart: Lines) -> Options:
    """A limit above every value has to be seen too; and sizes have steps of powers of two."""
    highest = max((value for line in chart.lines for value in line.values if value is not None), default=0.0)
    least = max((limit.value for limit in chart.limits), default=0.0)
    if chart.dimension == BYTES and highest > 0:
        step = 2.0 ** math.ceil(math.log2(highest / 4))
        return {"interval": step, "max": step * math.ceil(highest / step)}
    return {"max": least * 1.15} if least > highest else {}


def _plain(text: str) -> str:
    """What the library takes as it is: it has signs by which it would format a text."""
    return clean(text, _LONGEST).translate(_TEMPLATE)


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
            rows = tuple((row.message, signed(row.points)) for row in chart.rows)
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
            known = "; ".join(_told(line.name, line.values, chart.dimension) for line in chart.lines)
            return f"{chart.title}, over time: {known}"
        case Bars():
            known = "; ".join(_told(group.name, group.values, chart.dimension) for group in chart.groups)
            return f"{chart.title}, by {chart.over}: {known}"
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
