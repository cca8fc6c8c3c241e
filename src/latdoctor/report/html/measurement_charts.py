"""The sections with charts of measurements: latency, load and memory, batches, stages, GPU time."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from latdoctor.report.html import charts, distributions, time_series
from latdoctor.report.html.page_inputs import Period, Snapshot
from latdoctor.report.html.page_model import Chart, Highlight, Limit, Lines, Mark, Missing, Section


class ChartRows(Struct, frozen=True):
    """Charts, one row after the other, those of a row side by side; `marks` explains the marks on them."""

    rows: tuple[tuple[Chart | Missing, ...], ...]
    marks: tuple[Mark, ...] = ()

    @property
    def drawn(self) -> bool:
        return any(not isinstance(chart, Missing) for row in self.rows for chart in row)


def sections(
    measured: time_series.Measured,
    snapshots: Sequence[Snapshot],
    marks: tuple[Mark, ...],
    *,
    slos: Sequence[float] = (),
    highlights: tuple[Highlight, ...] = (),
    front: Period | None = None,
) -> tuple[tuple[Section, ...], tuple[str, ...]]:
    """The sections, and why others are missing, of which there is no chart and no number in the page's head.

    `slos`: known objectives in seconds, the first is drawn; else that of an observation.
    """
    known = [*slos, *(one.slo_p99 for one in snapshots if one.slo_p99 is not None)]
    limits = tuple(Limit("SLO", slo) for slo in known[:1])
    latency = time_series.chart(time_series.LATENCY, measured, limits, marks, highlights=highlights, front=front)
    load = tuple(time_series.chart(spec, measured, (), marks, front=front) for spec in time_series.LOAD)
    if isinstance(latency, Lines):
        load = tuple(_with_axis_of(latency, chart) if isinstance(chart, Lines) else chart for chart in load)
    drawn = [chart for chart in (latency, *load) if isinstance(chart, Lines)]
    labels = {mark.label for chart in drawn for mark in (*chart.marks, *(chart.whole.marks if chart.whole else ()))}
    key = tuple(mark for mark in marks if mark.label in labels)
    spread = distributions.histogram(distributions.LATENCY, snapshots)
    batches = tuple(distributions.histogram(spec, snapshots) for spec in distributions.BATCHES)
    stages = distributions.stage_chart(snapshots)
    latencies = sorted(((latency,), (spread,)), key=lambda row: isinstance(row[0], Missing))  # charts first
    gpu = distributions.gpu_time_charts(snapshots[-1:])
    found = (
        ("latency", "Latency", ChartRows(tuple(latencies), key)),
        ("load", "Load and memory", ChartRows((load,))),
        ("batches", "Batches", ChartRows((batches,))),
        ("stages", "Stages", ChartRows(((stages,),))),
        ("gpu", "GPU time", ChartRows((gpu,))),
    )
    kept = tuple(
        Section(id_, title, "charts", content)
        for id_, title, content in found
        if content.drawn or (id_ == "latency" and highlights)
    )
    ids = {section.id for section in kept}
    left_out = (chart for id_, _, content in found if id_ not in ids for row in content.rows for chart in row)
    missing = (f"{one.what} not available: {one.why}" for one in left_out if isinstance(one, Missing))
    return kept, tuple(missing)


def _with_axis_of(latency: Lines, chart: Lines) -> Lines:
    """`chart` with the time axis and the marks of the latency."""
    reference = latency.whole or latency
    whole = chart.whole and replace(chart.whole, span=charts.time_range(reference), marks=reference.marks)
    return replace(chart, span=charts.time_range(latency), marks=latency.marks, whole=whole)
