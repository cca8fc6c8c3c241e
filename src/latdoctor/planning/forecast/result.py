"""The answer of `latdoctor forecast`, as it is printed and written as JSON."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from latdoctor import __version__

SCHEMA_VERSION = "1"


class Tool(Struct, frozen=True):
    """The program that made the document."""

    name: str
    version: str


class Method(StrEnum):
    """A way to forecast, the simplest first."""

    LAST_VALUE = "last-value"
    SEASONAL_NAIVE = "seasonal-naive"
    ETS = "ets"
    RIDGE = "ridge"
    LSTM = "lstm"


class Standing(StrEnum):
    """What became of a method in the backtest."""

    CHOSEN = "chosen"
    NOT_BETTER = "not-better"  # a simpler one was as good, or another was better
    NOT_TRIED = "not-tried"


class NotTried(StrEnum):
    """Why a method was not tried."""

    TORCH_MISSING = "torch-missing"
    STATSMODELS_MISSING = "statsmodels-missing"
    NO_DAILY_SEASON = "no-daily-season"
    SHORT = "too-short-to-learn"


class NoForecast(StrEnum):
    """Why there is no forecast."""

    EMPTY = "empty"  # fewer than two usable samples
    SHORT = "too-short"
    CONSTANT = "constant"
    GAPS = "gaps"
    CLOSED = "closed"  # the history has no values at the time of day of the target
    STALE = "stale"  # the history ended so long ago that the target is past


class HistoryNote(StrEnum):
    """What a reader must know about the history."""

    NO_DAILY_SEASON = "no-daily-season"  # shorter than what a daily course can be learned from
    NO_WEEKLY_SEASON = "no-weekly-season"
    OPEN_HOURS = "open-hours"  # only the times of day at which there are values count
    GAPS = "gaps"
    IGNORED = "ignored-samples"
    DROPPED = "dropped-steps"
    LONGER = "longer-ahead"  # the target is later than asked, because steps are that long


class HistorySpan(Struct, frozen=True):
    """The history that was used; times in unix seconds UTC, `step` in seconds. `missing`: steps without a value."""

    start: float
    end: float
    step: float
    steps: int
    missing: int
    open_steps_a_day: int  # 0: no daily season known


class BacktestPart(Struct, frozen=True):
    """A part of the split: times of its targets in unix seconds, and the number of forecasts that were scored."""

    start: float
    end: float
    forecasts: int


class BacktestSplit(Struct, frozen=True):
    """Methods learn from `fit`, one is chosen by its errors in `choose`, and the accuracy printed is that in `score`.

    Before `score` each method learns again from all that was known by then.
    """

    fit: BacktestPart
    choose: BacktestPart
    score: BacktestPart


class MethodScore(Struct, frozen=True):
    """Errors of one method. `pinball` is at .9, in the unit of the values; the choice is made by `choose_mase`."""

    method: Method
    standing: Standing
    not_tried: NotTried | None = None
    choose_mase: float | None = None
    mase: float | None = None
    pinball: float | None = None
    coverage: float | None = None
    relative_to_last_value: float | None = None  # of the absolute errors in `score`


class ReplicaPlan(Struct, frozen=True):
    """Replicas for the planning figure at the target. Rates in the unit of the values; times in unix seconds."""

    per_replica: float
    reserve: float
    replicas: int
    running: int | None = None
    start: int | None = None  # more than run now; negative: fewer
    start_by: float | None = None


class Forecast(Struct, frozen=True, kw_only=True):
    """A forecast, or why there is none (`no_forecast`).

    `value` is expected at `at`, and with probability `level` no more than `planning_value`. `mase` and `pinball` are
    those of `method`; MASE is in units of `mase_unit`, the error of `mase_unit_of` before the scored part.
    """

    schema_version: str = SCHEMA_VERSION
    tool: Tool = Tool("latdoctor", __version__)
    source: str
    unit: str  # "/s", or empty where the source does not state it
    ahead: float  # seconds
    history: HistorySpan | None = None
    no_forecast: NoForecast | None = None
    method: Method | None = None
    mase: float | None = None
    pinball: float | None = None
    coverage: float | None = None
    level: float = 0.9
    at: float | None = None
    last_value: float | None = None
    value: float | None = None
    planning_value: float | None = None
    mase_unit: float | None = None
    mase_unit_of: Method | None = None
    split: BacktestSplit | None = None
    methods: tuple[MethodScore, ...] = ()
    notes: tuple[HistoryNote, ...] = ()
    ignored: int = 0  # samples that are no rates
    dropped: int = 0  # older steps that were not used
    plan: ReplicaPlan | None = None
