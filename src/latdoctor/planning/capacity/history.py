"""The limit of one replica from the history of ordinary operation, as far as that reaches. Nothing is overloaded.

The highest rate that was within the SLO is a lower bound. Where the history went beyond the limit, that is observed.
Else a queueing model says where it is, if the history has come at least half-way and leaves the model little choice.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from msgspec import Struct

from latdoctor import __version__
from latdoctor.errors import OperationError
from latdoctor.planning.capacity.binding import Bound
from latdoctor.planning.capacity.fit import limit
from latdoctor.planning.capacity.history_model import FittedModel, LoadBin, bins_of, fit_history
from latdoctor.planning.capacity.level import Level
from latdoctor.planning.capacity.load_window import LoadWindow
from latdoctor.planning.capacity.measurement import CapacityMeasurement, CapacitySource, HistoryFigures

REACH = 0.5  # share of its limit from which on the history says something about it
MOST_SPREAD = 1.6  # highest over lowest end of the interval, up to which the model's limit is given
FEWEST_WINDOWS = 12
_FEWEST_OF_LEVEL = 3  # windows: one alone may be a chance
_LEVELS = 12


class HistorySettings(Struct, frozen=True):
    """`slo` in seconds; `attainment`: the share of requests within it."""

    address: str
    target: str
    slo: float
    attainment: float = 0.99
    seed: int = 0


def from_history(windows: Sequence[LoadWindow], settings: HistorySettings) -> CapacityMeasurement:
    """Raises OperationError where there are too few windows, or all at one load."""
    levels = _levels(windows, settings.slo)
    if len(windows) < FEWEST_WINDOWS or not levels:
        what = f"{len(windows)} steps of the history have enough requests; {FEWEST_WINDOWS} are needed"
        raise OperationError(what, where=settings.address, next_step="a longer history (--since), or a longer --step")
    found = limit(levels, settings.attainment, settings.seed)
    within = found.rate > 0
    observed = within and found.first_failing is not None
    bins = tuple(one for one in bins_of(windows) if len(one.windows) >= _FEWEST_OF_LEVEL)
    fitted = fit_history(bins, settings.slo, settings.attainment, settings.seed) if len(bins) > 1 else None
    is_modelled = within and not observed and _reaches(fitted, bins)
    rate, interval = (fitted.limit, fitted.interval) if fitted and is_modelled else (found.rate, found.interval)
    at_least = within and not observed and not is_modelled
    return CapacityMeasurement(
        address=settings.address,
        target=settings.target,
        date=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        tool_version=__version__,
        slo=settings.slo,
        attainment=settings.attainment,
        limit=rate,
        interval=interval,
        first_failing=found.first_failing,
        bound_by=Bound.UNKNOWN if observed else Bound.NONE,
        is_cliff=found.is_cliff,
        levels=levels,
        closed=(),
        lasted=windows[-1].at - windows[0].at + windows[0].seconds,
        model=fitted.model if fitted else None,
        model_limit=fitted.limit if fitted else None,
        model_error=None,
        problems=tuple(_problems(fitted, bins, within=within, at_least=at_least)),
        source=CapacitySource.HISTORY,
        history=_figures(windows, bins, fitted, at_least=at_least),
    )


def _figures(
    windows: Sequence[LoadWindow], bins: Sequence[LoadBin], fitted: FittedModel | None, *, at_least: bool
) -> HistoryFigures:
    calm = min(windows, key=lambda one: one.rate)
    batches = [one.batch for one in windows if one.batch is not None]
    return HistoryFigures(
        at_least=at_least,
        replicas=len({one.replica for one in windows}),
        windows=len(windows),
        step=calm.seconds,
        highest_rate=max(one.rate for one in windows),
        service_time=bins[0].mean if bins else calm.mean,
        speeds=tuple((one.rate * one.mean, one.rate) for one in bins),
        reached=bins[-1].rate / fitted.limit if fitted and fitted.limit and bins else None,
        misfit=fitted.misfit if fitted else None,
        batch=(min(batches), max(batches)) if batches else None,
    )


def _levels(windows: Sequence[LoadWindow], slo: float) -> tuple[Level, ...]:
    """Windows of about the same rate as a level of a measurement."""
    found = []
    for one in bins_of(windows, max(1, min(_LEVELS, len(windows) // 5))) if windows else ():
        if len(one.windows) < _FEWEST_OF_LEVEL:
            continue
        blocks = tuple((round(w.requests * w.within(slo)), w.requests) for w in one.windows)
        good, requests = (sum(part) for part in zip(*blocks, strict=True))
        found.append(
            Level(
                rate=one.rate,
                seconds=sum(w.seconds for w in one.windows),
                requests=requests,
                good=good,
                errors=round(sum(w.errors * w.seconds for w in one.windows)),
                p50=sorted(w.p50 for w in one.windows)[len(one.windows) // 2],
                p99=one.p99,
                blocks=blocks,
            )
        )
    return tuple(found)


def _reaches(fitted: FittedModel | None, bins: Sequence[LoadBin]) -> bool:
    """Whether the history constrains the limit of the model."""
    if fitted is None or fitted.limit <= 0 or fitted.interval[0] <= 0:
        return False
    spread = fitted.interval[1] / fitted.interval[0]
    return bins[-1].rate >= REACH * fitted.limit and spread <= MOST_SPREAD


def _problems(fitted: FittedModel | None, bins: Sequence[LoadBin], *, within: bool, at_least: bool) -> Iterator[str]:
    if not within:
        yield "no load of the history was within the objective"
    elif at_least:
        yield _unreached(fitted, bins)


def _unreached(fitted: FittedModel | None, bins: Sequence[LoadBin]) -> str:
    if fitted is None or fitted.limit <= 0:
        return "the history has one load only, so that the limit is not known"
    if bins[-1].rate < REACH * fitted.limit:
        share = bins[-1].rate / fitted.limit
        return f"the history does not reach the limit: at most {share:.0%} of what a model says of it"
    low, high = fitted.interval
    return f"the history does not settle the limit: a model says anything from {low:.3g} to {high:.3g}/s"
