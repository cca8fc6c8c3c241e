"""The HTML report of a regression benchmark: one file without network access."""

from __future__ import annotations

from collections.abc import Iterator

from latdoctor.planning.comparison.comparison import Comparison
from latdoctor.planning.comparison.effect import TEXT, Effect, Quantity
from latdoctor.planning.comparison.regression import RegressionRuns


def regression_page(comparison: Comparison, stored: RegressionRuns, now: RegressionRuns, headline: str) -> str:
    """The page; `headline` is what the command prints first."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("latdoctor.planning.comparison"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
    )
    return environment.get_template("regression.html").render(
        comparison=comparison,
        verdict=TEXT[comparison.verdict],
        headline=headline,
        rows=[_row(one) for one in comparison.effects],
        runs=list(_runs(stored, now)),
    )


def _row(effect: Effect) -> dict[str, str]:
    shares = effect.quantity is Quantity.ERRORS
    low, high = effect.interval or (None, None)
    return {
        "name": effect.quantity.value,
        "a": _value(effect.quantity, effect.a),
        "b": _value(effect.quantity, effect.b),
        "ratio": "" if shares or effect.ratio is None else f"× {effect.ratio:.3f}",
        "interval": "" if low is None or high is None else f"{low:.3f} to {high:.3f}",
        "verdict": effect.verdict.value,
        "shown": TEXT[effect.verdict],
    }


def _value(quantity: Quantity, value: float | None) -> str:
    return "not measured" if value is None else quantity.shown(value)


def _runs(stored: RegressionRuns, now: RegressionRuns) -> Iterator[dict[str, str]]:
    today = {one.schedule: one.figures for one in now.runs}
    for one in stored.runs:
        other = today.get(one.schedule)
        b = "another schedule" if other is None else _value(Quantity.P99, other.p99)
        yield {"seed": str(one.seed), "a": _value(Quantity.P99, one.figures.p99), "b": b}
