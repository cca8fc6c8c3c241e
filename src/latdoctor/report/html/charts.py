"""Options of the charting library (ECharts) for each chart.

`page.js` resolves texts `@name` under the keys that it knows: colours by the scheme, formats of numbers, the width.
Text of others never appears under these keys.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from latdoctor.report.html.page_model import (
    BYTES,
    Bars,
    Chart,
    Highlight,
    Lines,
    Mark,
    MarkKind,
    ScoreBreakdown,
    Stage,
    StageTrack,
    Waterfall,
)
from latdoctor.sanitize import clean
from latdoctor.units import format_value

Options = dict[str, Any]

_DASHES = ("solid", "dashed", "dotted")
_SYMBOLS = ("circle", "rect", "triangle", "diamond")
_MARKS = {  # colour and stroke; the stroke differs where colours cannot be seen
    MarkKind.EVENT: ("@quiet", "dotted"),
    MarkKind.CHANGED: ("@change", "solid"),
    MarkKind.VERIFIED: ("@good", "solid"),
    MarkKind.ROLLED_BACK: ("@bad", "solid"),
    MarkKind.DUE: ("@quiet", "dashed"),
}
_WITHIN_EDGES = {"outerBoundsMode": "same", "outerBoundsContain": "axisLabel"}  # of a grid: labels stay inside
MIN_SHARE = 0.005  # of the longest track: shorter stages appear in the table only
_FEW = 40  # points up to which each has a symbol
_TEMPLATE = str.maketrans("{|}", "(/)")
_MAX_NAME = 300  # characters


def options(chart: Chart) -> Options:
    """The options of one chart."""
    match chart:
        case Lines():
            return _lines(chart)
        case Bars():
            return _bars(chart)
        case Waterfall():
            return _waterfall(chart)
        case ScoreBreakdown():
            return _breakdown(chart)


def rows(chart: Chart) -> int:
    """Number of horizontal bars, by which the chart grows; 0 for a chart of fixed height."""
    match chart:
        case Bars():
            return len(chart.categories) if chart.horizontal else 0
        case Waterfall():
            return len(_drawn_stages(chart))
        case ScoreBreakdown():
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
    first, last = time_range(chart)
    series += [_highlight(one, (first + last) / 2) for one in chart.highlights]
    return {
        **_common(chart.dimension, "axis"),
        "useUTC": True,
        "grid": {"left": 8, "right": 28, "top": 66 if chart.marks else 40, "bottom": 8, **_WITHIN_EDGES},
        "xAxis": {
            "type": "time",
            "splitLine": {"show": False},
            "min": first * 1000,
            "max": last * 1000,
            "axisLabel": {"hideOverlap": True},
        },
        "yAxis": {**_axis(chart.dimension), **_value_range(chart)},
        "series": series,
    }


def time_range(chart: Lines) -> tuple[float, float]:
    """The time axis contains every point, mark and highlight."""
    times = [*chart.span] + [time for line in chart.lines for time in line.times] + [mark.time for mark in chart.marks]
    times += [time for one in chart.highlights for time in (one.start, one.end)]
    return (min(times), max(times)) if times else (0.0, 0.0)


def _highlight(highlight: Highlight, middle: float) -> Options:
    """A bold bar over the time of the number, its label on the side with more room."""
    early = (highlight.start + highlight.end) / 2 < middle
    label: Options = {
        "show": True,
        "formatter": _plain(highlight.label),
        "position": "right" if early else "left",
        "color": "@ink",
        "fontWeight": "bold",
    }
    ends = [[highlight.start * 1000, highlight.value], [highlight.end * 1000, highlight.value]]
    labelled = {"value": ends[early], "label": label}
    return {
        "type": "line",
        "name": _plain(highlight.name),
        "data": [ends[0], labelled] if early else [labelled, ends[1]],
        "lineStyle": {"width": 4, "color": "@ink"},
        "itemStyle": {"color": "@ink"},
        "symbol": "diamond",
        "symbolSize": 10,
        "showSymbol": True,
        "z": 6,
        "emphasis": {"disabled": True},
    }


def _limits(chart: Lines) -> Iterator[Options]:
    for limit in chart.limits:
        message = f"{_plain(limit.name)} {format_value(limit.value, chart.dimension)}"
        yield {
            "yAxis": limit.value,
            "lineStyle": {"color": "@bad", "type": "dashed", "width": 1.5},
            "label": {"formatter": message, "position": "insideStartTop", "color": "@bad"},
        }


def _marks(marks: tuple[Mark, ...]) -> Iterator[Options]:
    """Labels alternate between three levels, so that those of near marks do not overlap."""
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
    if chart.horizontal:
        for one in series:
            one |= {"barMaxWidth": 12, "label": _value_label(chart.dimension)}
        return _horizontal(chart.dimension, chart.categories, series)
    return {
        **_common(chart.dimension, "axis"),
        "legend": {"show": several, "top": 4, "left": 0, "type": "plain", "itemWidth": 12, "itemHeight": 12},
        "grid": {"left": 8, "right": 24, "top": 44 if several else 16, "bottom": 28, **_WITHIN_EDGES},
        "xAxis": {
            "type": "category",
            "data": [_plain(name) for name in chart.categories],
            "axisTick": {"show": False},
            "name": _plain(chart.axis),
            "nameLocation": "middle",
            "nameGap": 28,
        },
        "yAxis": _axis(chart.dimension),
        "series": series,
    }


def _color(color: int, place: int) -> str:
    return f"@series{color or place % 6 + 1}"


def _waterfall(chart: Waterfall) -> Options:
    """Bars that begin where the one before ends: on top of a transparent bar."""
    drawn = _drawn_stages(chart)
    several = len(chart.tracks) > 1
    names = [f"{stage.name}, {track.name}" if several else stage.name for track, _, stage in drawn]
    colors = {track.name: _color(track.color, place) for place, track in enumerate(chart.tracks)}
    series: list[Options] = [
        {
            "type": "bar",
            "stack": "offset",
            "silent": True,
            "itemStyle": {"color": "transparent", "decal": "none"},
            "data": [sum(one.length for one in track.stages[:place]) for track, place, _ in drawn],
        },
        {
            "type": "bar",
            "stack": "offset",
            "name": "mean",
            "barMaxWidth": 12,
            "label": _value_label(chart.dimension),
            "data": [{"value": stage.length, "itemStyle": {"color": colors[track.name]}} for track, _, stage in drawn],
        },
    ]
    return _horizontal(chart.dimension, names, series)


def _drawn_stages(chart: Waterfall) -> list[tuple[StageTrack, int, Stage]]:
    longest = max((track.length for track in chart.tracks), default=0.0)
    listed = [(track, place, stage) for track in chart.tracks for place, stage in enumerate(track.stages)]
    return [one for one in listed if one[2].length >= MIN_SHARE * longest]


def _breakdown(chart: ScoreBreakdown) -> Options:
    bars: Options = {
        "type": "bar",
        "name": "points",
        "barMaxWidth": 12,
        "label": _value_label("points"),
        "data": [
            {"value": row.points, "itemStyle": {"color": "@good" if row.points >= 0 else "@bad"}} for row in chart.rows
        ],
    }
    return _horizontal("points", [row.message for row in chart.rows], [bars])


def _horizontal(dimension: str, names: Sequence[str], series: Sequence[Options]) -> Options:
    """Bars from left to right, each below its name: a long name has the whole width, on a phone as well."""
    label: Options = {"inside": True, "align": "left", "verticalAlign": "bottom", "color": "@ink", "interval": 0}
    label |= {"padding": [0, 0, 10, 0], "width": "@names", "overflow": "break", "lineHeight": 15, "margin": 0}
    return {
        **_common(dimension, "none"),
        "legend": {"show": False},
        "grid": {"left": 8, "right": 64, "top": 16, "bottom": 8, **_WITHIN_EDGES},
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
            # Drawn instead of written as HTML: no text can become an element.
            "renderMode": "richText",
            "valueFormatter": f"@{dimension}",
        },
        "legend": {"top": 4, "left": 0, "type": "plain"},
    }


def _axis(dimension: str) -> Options:
    """An axis of values from zero."""
    return {"type": "value", "axisLabel": {"formatter": f"@{dimension}"}, "splitNumber": 4}


def _value_range(chart: Lines) -> Options:
    """Contains the limits; sizes in bytes have steps of powers of two."""
    values = [value for line in chart.lines for value in line.values if value is not None]
    highest = max([*values, *(one.value for one in chart.highlights)], default=0.0)
    limit = max((limit.value for limit in chart.limits), default=0.0)
    if chart.dimension == BYTES and highest > 0:
        step = 2.0 ** math.ceil(math.log2(highest / 4))
        return {"interval": step, "max": step * math.ceil(highest / step)}
    return {"max": limit * 1.15} if limit > highest else {}


def _plain(text: str) -> str:
    """Text without the characters of the library's own templates."""
    return clean(text, _MAX_NAME).translate(_TEMPLATE)
