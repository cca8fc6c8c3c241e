"""How good the forecasts of `latdoctor forecast` are on real request rates, and what scaling by them saves.

Usage: python -m bench.forecast [--late 0.1%] [-o json]

First the backtest as the command prints it. Then the last fifth of each series is served by replicas that start as long
before as the forecast reaches (bench/scaling.py), ordered by: the .9 quantile of the chosen forecast, that of the last
value, a reactive autoscaler, and an oracle that knows the rate. All keep 30 % of the capacity free; and, for the same
service, as much as each needs for no more than --late of the requests to be late. The calls to a bank are used where
`python -m bench.forecast_series` has fetched them.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np

from bench.forecast_series import FOLDER
from bench.harness import arguments, log, markdown, print_result
from bench.scaling import Controller, Service, least_free, needed, reactive, simulate
from latdoctor.collectors.time_value_csv import read_series
from latdoctor.planning.forecast.backtest import Backtest, backtest, split_of
from latdoctor.planning.forecast.candidates import candidates_for
from latdoctor.planning.forecast.forecaster import ForecastRequest, forecast
from latdoctor.planning.forecast.open_hours import OpenSeries, open_series
from latdoctor.planning.forecast.rate_series import RateSeries, on_grid
from latdoctor.planning.forecast.result import Method
from latdoctor.units import parse_share

FIXTURES = Path("fixtures/forecast")
SERIES = {"bank_calls": (FOLDER, 900.0), "servegen-m-large": (FIXTURES, 600.0), "servegen-m-small": (FIXTURES, 600.0)}
RESERVE = 0.3
PEAK = 10  # replicas at the 99th percentile of the rate, without a reserve


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--late", default="0.1%", help="the share of requests that may be late")
    options = parser.parse_args()
    late = parse_share(options.late)
    accuracy: dict[str, object] = {}
    scaling: dict[str, dict[str, dict[str, float | None]]] = {}
    for name, (folder, ahead) in SERIES.items():
        path = folder / f"{name}.csv"
        if not path.exists():
            log(f"{path} is missing: python -m bench.forecast_series")
            continue
        accuracy[name] = backtested(path, ahead)
        scaling[name] = scaled(path, ahead, late)
    text = "\n".join([*_accuracy_table(accuracy), "", *_scaling_table(scaling, options.late)])
    print_result({"accuracy": accuracy, "scaling": scaling}, options.output, text)


def backtested(path: Path, ahead: float) -> dict[str, object]:
    """What `latdoctor forecast` prints of a series."""
    found = forecast([read_series(path)], ForecastRequest(path.name, ahead))
    return {
        "method": found.method,
        "mase": found.mase,
        "pinball": found.pinball,
        "coverage": found.coverage,
        "methods": {one.method: one.mase for one in found.methods},
    }


def scaled(path: Path, ahead: float, late: float) -> dict[str, dict[str, float | None]]:
    """The cost of each controller in the last fifth of a series."""
    grid = on_grid([read_series(path)], ahead)
    steps = open_series(grid, round(ahead / grid.step)) if grid else None
    split = split_of(steps) if steps else None
    if grid is None or steps is None or split is None:
        raise SystemExit(f"{path} has no forecast")
    found = backtest(steps, split, candidates_for(steps, split.fit_end))
    service = _service(grid, steps, found)
    chosen, last = (found.tested[method].score_upper for method in (found.chosen, Method.LAST_VALUE))
    controllers: dict[str, Controller] = {
        f"forecast ({found.chosen})": partial(needed, chosen, service.per_replica),
        "last value": partial(needed, last, service.per_replica),
        "reactive (HPA)": partial(reactive, service),
        "oracle": partial(needed, service.rates, service.per_replica),
    }
    return {name: _cost(service, controller, late) for name, controller in controllers.items()}


def _service(grid: RateSeries, steps: OpenSeries, found: Backtest) -> Service:
    rates = steps.values[found.split.score + steps.ahead]
    return Service(rates, grid.step, steps.ahead, float(np.quantile(steps.filled, 0.99)) / PEAK)


def _cost(service: Service, controller: Controller, late: float) -> dict[str, float | None]:
    usual = simulate(service, controller(RESERVE))
    free = least_free(service, controller, late)
    return {
        "late": usual.late,
        "late_steps": usual.late_steps,
        "replica_hours": usual.replica_hours,
        "free_for_same_service": free,
        "replica_hours_for_same_service": None if free is None else simulate(service, controller(free)).replica_hours,
    }


def _accuracy_table(found: dict[str, object]) -> list[str]:
    rows = []
    for name, one in found.items():
        assert isinstance(one, dict)
        cells = [_figure(one["methods"][method]) for method in Method]
        rows.append([name, *cells, one["method"], _figure(one["pinball"]), f"{one['coverage']:.0%}"])
    return markdown(["MASE", *Method, "taken", "pinball .9", "within .9"], rows)


def _scaling_table(found: dict[str, dict[str, dict[str, float | None]]], late: str) -> list[str]:
    rows = []
    for name, controllers in found.items():
        for controller, cost in controllers.items():
            shares = [f"{cost[key] or 0:.2%}" for key in ("late", "late_steps")]
            same, free = cost["replica_hours_for_same_service"], cost["free_for_same_service"]
            reached = ["not reached", "-"] if same is None or free is None else [f"{same:.0f}", f"{free:.0%}"]
            rows.append([name, controller, *shares, f"{cost['replica_hours'] or 0:.0f}", *reached])
    columns = ["series", "scaled by", "late requests", "late steps", "replica-hours"]
    return markdown([*columns, f"replica-hours for {late} late", "kept free then"], rows)


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


if __name__ == "__main__":
    main()
