"""A forecast as text of one screen, and as JSON."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Any

import msgspec

from latdoctor.planning.forecast.result import (
    Forecast,
    HistoryNote,
    HistorySpan,
    Method,
    MethodScore,
    NoForecast,
    NotTried,
    ReplicaPlan,
    Standing,
)
from latdoctor.planning.standby_basis import NoBasis, no_basis
from latdoctor.report.machine_formats import schema_of
from latdoctor.report.text_utils import wrapped
from latdoctor.sanitize import counted
from latdoctor.units import format_value

NAMES = {
    Method.LAST_VALUE: "last value",
    Method.SEASONAL_NAIVE: "seasonal naive",
    Method.ETS: "ETS",
    Method.RIDGE: "ridge",
    Method.LSTM: "LSTM",
}
_WHAT = {
    Method.LAST_VALUE: "the rate stays as it is",
    Method.SEASONAL_NAIVE: "as a day before",
    Method.ETS: "exponential smoothing around the daily profile",
    Method.RIDGE: "regression on the last steps and the daily profile",
    Method.LSTM: "a neural network on the last steps and the daily profile",
}
_NOT_TRIED = {
    NotTried.TORCH_MISSING: "torch is not installed (pip install 'latdoctor[lab]')",
    NotTried.STATSMODELS_MISSING: "statsmodels is not installed (pip install 'latdoctor[plan]')",
    NotTried.NO_DAILY_SEASON: "the history is too short for a daily season",
    NotTried.SHORT: "the history is too short to learn it",
}
NO_FORECAST_TEXTS = {
    NoForecast.EMPTY: "fewer than two usable samples",
    NoForecast.SHORT: "the history is too short to test a method on it",
    NoForecast.CONSTANT: "the rate never changed, so that nothing can be learned from it",
    NoForecast.GAPS: "too many steps have no value",
    NoForecast.CLOSED: "closed then, by the times of day without values in the history",
    NoForecast.STALE: "the history ended so long ago that the time to forecast is past",
}
NO_FORECAST_NEXT = {
    NoForecast.EMPTY: "pass a history of at least a day, better two weeks",
    NoForecast.SHORT: "pass a history of at least a day, better two weeks",
    NoForecast.CONSTANT: "check that the query counts requests of clients",
    NoForecast.GAPS: "pass a part without gaps: --since, --until",
    NoForecast.CLOSED: "forecast from a time at which the service is open: --until TIME",
    NoForecast.STALE: "check whether the service is still scraped, or name the end: --until TIME",
}


def render_json(found: Forecast) -> str:
    """Indented JSON, keys in the order of the type; every key is present."""
    return msgspec.json.format(msgspec.json.encode(found), indent=2).decode() + "\n"


def forecast_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of the document, generated from the types."""
    return schema_of(Forecast, "latdoctor forecast")


def render_text(found: Forecast) -> str:
    """At most 24 lines of 80 columns."""
    return "\n".join(line.rstrip() for line in _lines(found)) + "\n"


def _lines(found: Forecast) -> Iterator[str]:
    yield from wrapped(_headline(found), "", "  ")
    yield from wrapped(found.source, "", "  ")
    yield ""
    if found.no_forecast is not None:
        yield from wrapped(NO_FORECAST_NEXT[found.no_forecast], " Next  ", "       ")
    if found.plan is not None:
        yield from wrapped(_plan(found, found.plan), " Do    ", "       ")
        yield from _next(found, found.plan)
    if found.no_forecast is not None or found.plan is not None:
        yield ""
    if found.methods:
        yield from _methods(found)
        yield ""
    if found.history is not None:
        yield from wrapped(_history(found, found.history), " ", " ")
    yield from _split(found)


def _headline(found: Forecast) -> str:
    at = f" for {_clock(found.at)}" if found.at is not None else ""
    if found.no_forecast is not None:
        return f"NO FORECAST{at}: {NO_FORECAST_TEXTS[found.no_forecast]}"
    value, planning = (_value(found, one) for one in (found.value, found.planning_value))
    now = _value(found, found.last_value)
    at = f"{_clock(found.at or 0.0)} (in {_span(found.ahead)})"
    return f"FORECAST  {value} at {at}, now {now}; plan for {planning} (.9 quantile)"


def _plan(found: Forecast, plan: ReplicaPlan) -> str:
    by = "" if plan.start_by is None else f" by {_clock(plan.start_by)}"
    needed = counted(plan.replicas, "replica")
    basis = (
        f"{needed} carry {_value(found, found.planning_value)} with {plan.reserve:.0%}".replace("%", " %")
        + f" reserve at {_value(found, plan.per_replica)} each"
    )
    if plan.start is None:
        return f"have {needed} ready{by}: {basis}"
    if plan.start > 0:
        return f"start {counted(plan.start, 'replica')}{by}: {basis}, {plan.running} run"
    spare = f"; {-plan.start} may be stopped" if plan.start < 0 else ""
    return f"start none: {basis}, {plan.running} run{spare}"


_NOT_A_BASIS = {
    NoBasis.NOT_BETTER: "no method is better than the last value, so that no rise is foreseen",
    NoBasis.MISSES: "the rate was beyond the .9 quantile too often",
}


def _next(found: Forecast, plan: ReplicaPlan) -> Iterator[str]:
    """The command that starts the replicas, or why none is started by the forecast alone."""
    if plan.start is not None and plan.start <= 0:
        return
    lack = no_basis(found, found.history.end if found.history else 0.0)
    if lack in _NOT_A_BASIS:
        yield from wrapped(f"{_NOT_A_BASIS[lack]}: judge yourself", " But   ", "       ")
    number = f" --set replicas={plan.replicas}" if lack in _NOT_A_BASIS else ""
    yield " Next  the same with -o json > forecast.json; then, with --kube or --server:"
    yield f"       latdoctor remediate --from forecast.json{number} --apply"


def _methods(found: Forecast) -> Iterator[str]:
    """The comparison, the chosen method marked, and why each other one is not used."""
    yield f" {'method':<16}{'MASE':>7}{'pinball .9':>12}{'within .9':>11}   against last value"
    for one in found.methods:
        if one.standing is not Standing.NOT_TRIED:
            yield _row(one)
    yield from wrapped(_why(found), " ", " ")
    for one in found.methods:
        if one.not_tried is not None:
            yield from wrapped(f"{NAMES[one.method]} not used: {_NOT_TRIED[one.not_tried]}", " ", " ")


def _row(one: MethodScore) -> str:
    mark = ">" if one.standing is Standing.CHOSEN else " "
    relative = "" if one.relative_to_last_value is None else _signed(one.relative_to_last_value - 1)
    cells = f"{_figure(one.mase):>7}{_figure(one.pinball):>12}{_share(one.coverage):>11}"
    return f"{mark}{NAMES[one.method]:<16}{cells}   {relative}"


def _why(found: Forecast) -> str:
    """Which method was taken, and that a more complex one was no better."""
    if found.method is None:
        return ""
    taken = f"taken: {NAMES[found.method]} ({_WHAT[found.method]})"
    own = next(one for one in found.methods if one.method is found.method)
    lstm = found.methods[-1]
    if lstm.standing is not Standing.NOT_BETTER or own.choose_mase is None or lstm.choose_mase is None:
        return f"{taken}, for its error in the backtest"
    simpler = "the last value" if found.method is Method.LAST_VALUE else NAMES[found.method]
    how = "better here" if own.choose_mase <= lstm.choose_mase else "as good (within 2 %) and simpler"
    return f"{taken}; LSTM not used: {simpler} is {how}"


_NOTES = {
    HistoryNote.NO_DAILY_SEASON: "it covers no two days, so that a daily rise or fall is not foreseen",
    HistoryNote.NO_WEEKLY_SEASON: "it covers less than two weeks: days of the week are hardly known",
    HistoryNote.OPEN_HOURS: "only opening hours count",
    HistoryNote.LONGER: "the steps do not permit a shorter time",
}


def _history(found: Forecast, history: HistorySpan) -> str:
    steps = f"{history.steps:,}".replace(",", " ")
    text = f"history: {_moment(history.start)} to {_moment(history.end)}, {steps} steps of {_span(history.step)}"
    notes = [_NOTES[one] for one in found.notes if one in _NOTES]
    if HistoryNote.GAPS in found.notes:
        notes.append(f"{history.missing / history.steps:.0%} of them without a value".replace("%", " %"))
    if found.ignored:
        notes.append(f"{counted(found.ignored, 'sample')} negative or infinite, left out")
    if found.dropped:
        notes.append(f"{found.dropped} older steps left out")
    return "; ".join([text, *notes])


def _split(found: Forecast) -> Iterator[str]:
    if found.split is None:
        return
    fit, choose, score = found.split.fit, found.split.choose, found.split.score
    yield from wrapped(
        f"backtest: learned until {_moment(fit.end)}, chosen by {choose.forecasts} forecasts until"
        f" {_moment(choose.end)}, scored on the {score.forecasts} after it",
        " ", " ",
    )  # fmt: skip
    if found.mase_unit is not None and found.mase_unit_of is not None:
        of = "the value a day before" if found.mase_unit_of is Method.SEASONAL_NAIVE else "the last value"
        yield f" MASE 1 = the mean error of {of} ({_value(found, found.mase_unit)})"


def _value(found: Forecast, value: float | None) -> str:
    return "-" if value is None else format_value(value, "rate" if found.unit else "count")


def _figure(value: float | None) -> str:
    if value is None:
        return "-"
    if value >= 10:
        return f"{value:.3g}"
    return (f"{value:.3f}" if value >= 0.1 else f"{value:.3g}").removeprefix("0")


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}".replace("%", " %")


def _signed(share: float) -> str:
    if abs(share) < 0.005:
        return "the same error" if share else ""
    return f"{share:+.0%}".replace("%", " %").replace("-", "−") + " error"


def _span(seconds: float) -> str:
    return format_value(seconds, "time") if seconds < 3600 or seconds % 60 else f"{seconds / 60:g} min"


def _moment(time: float | None) -> str:
    return "-" if time is None else _utc(time).strftime("%Y-%m-%d %H:%M UTC")


def _clock(time: float) -> str:
    return _utc(time).strftime("%H:%M UTC")


def _utc(time: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(time, datetime.UTC)
