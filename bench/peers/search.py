"""The sustained rate of each server: a short trial of each setting, then a bisection for the best ones.

The sustained rate is the highest rate of Poisson arrivals at which the P99 of an open-loop run is within the SLO and
every request is answered, in the median of several runs with other seeds.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from bench.peers.servers import BENTOML, LITSERVE, OURS, Setting
from bench.peers.trials import QUIET, Trial, screened, trial

REPEATED = 20  # the first seed of the repetitions
LEAST_SHARE = 0.4  # the score of a setting that fails at all of them
# Of the saturated rate: between which the search by halves begins. That rate is of a short run, and may be low: the
# upper end is raised until it is not good.
LOWER, UPPER = 0.6, 1.2
RAISE = 1.25
MOST_RAISES = 5
DOWN = 0.96  # a rate that its repetitions do not confirm is tried again, so much lower


class Effort(Struct, frozen=True):
    """How much is measured. Times in seconds; `shares` of the saturated rate are at which a setting is tried."""

    settings: tuple[Setting, ...]
    shares: tuple[float, ...]
    saturate: float
    trial: float
    run: float
    halvings: int
    repeats: int
    retreats: int
    null: float


class Screening(Struct, frozen=True):
    """The short trial of a setting. `capacity` is its saturated rate, `score` the highest good rate that was tried."""

    setting: Setting
    capacity: float
    score: float
    trials: tuple[Trial, ...]


class Sustained(Struct, frozen=True):
    """The result for one setting. `p99` is the median of the repetitions at `rate`, in seconds, or of the one run that
    the search made there. `confirmed`: they were good; None: there were none."""

    setting: Setting
    rate: float
    confirmed: bool | None
    p99: float
    trials: tuple[Trial, ...]


class Finalist(Struct, frozen=True):
    """A setting whose sustained rate is searched for; `careful`: and confirmed by repetitions."""

    screening: Screening
    careful: bool


PLAIN = (
    Setting(LITSERVE, plain=True),
    Setting(BENTOML, plain=True),
    Setting(BENTOML, 100, plain=True),  # its batchable API with its defaults
)


def full() -> Effort:
    lit = [Setting(LITSERVE), *(Setting(LITSERVE, n, wait) for n in (4, 8, 16, 32) for wait in (0, 5, 20, 50))]
    bento = [Setting(BENTOML), *(Setting(BENTOML, n, latency_ms=ms) for n in (4, 8, 16, 32) for ms in (500, 60_000))]
    grouped = [
        *(Setting(LITSERVE, n, wait, grouped=True) for n in (8, 32) for wait in (0, 5)),
        *(Setting(BENTOML, n, grouped=True) for n in (8, 32)),
    ]
    return Effort((*PLAIN, *lit, *bento, *grouped), (UPPER, 0.9, 0.75), 3.0, 4.0, 12.0, 3, 2, 1, 6.0)


def quick() -> Effort:
    settings = (Setting(LITSERVE), Setting(LITSERVE, 8, 5), Setting(BENTOML), Setting(BENTOML, 8))
    return Effort(settings, (0.9,), 2.0, 4.0, 7.0, 3, 1, 0, 2.0)


Say = Callable[[str], None]


def screen(effort: Effort, programs: Path, slo: float, say: Say) -> tuple[Screening, ...]:
    """A short trial of each setting of the peers, and of ours for the limits of its search."""
    found: list[Screening] = []
    for setting in (Setting(OURS), *effort.settings):
        best = max((each.score for each in found if each.setting.server == setting.server), default=0.0)
        capacity, trials = screened(
            setting, programs, effort.shares, (effort.saturate, effort.trial), slo, least=best / UPPER
        )
        good = [each.rate for each in trials if each.worst() <= slo]
        score = max(good, default=LEAST_SHARE * capacity)
        say(f"{setting.server:10} {setting.label:40} saturated {capacity:6.1f}/s, good at {score:6.1f}/s")
        found.append(Screening(setting, capacity, score, trials))
    return tuple(found)


def finalists(screenings: Sequence[Screening]) -> dict[str, Finalist]:
    """What is searched, by the place it has in the comparison. The defaults and the grouped are not repeated."""
    by_setting = {each.setting: each for each in screenings}
    chosen = {"ours": Finalist(by_setting[Setting(OURS)], careful=True)}
    for server in (LITSERVE, BENTOML):
        own = [each for each in screenings if each.setting.server == server]
        settings = [each for each in own if not each.setting.grouped]
        grouped = [each for each in own if each.setting.grouped]
        chosen[f"{server}, its best settings"] = Finalist(max(settings, key=_rank), careful=True)
        for each in settings:
            if each.setting.plain:
                name = "not batchable" if each.setting.batch == 1 else "batchable"
                chosen[f"{server}, its defaults" + (f", {name}" if server == BENTOML else "")] = Finalist(
                    each, careful=False
                )
        if grouped:
            chosen[f"{server}, with our grouping inside"] = Finalist(max(grouped, key=_rank), careful=False)
    return chosen


def _rank(screening: Screening) -> tuple[float, float]:
    return screening.score, screening.capacity


def search(
    chosen: Mapping[str, Finalist], effort: Effort, programs: Path, slo: float, say: Say
) -> dict[str, Sustained]:
    """The sustained rates. Servers take turns run by run, so that a slow minute of the machine affects all."""
    trials: dict[str, list[Trial]] = {name: [] for name in chosen}

    def run(name: str, rate: float, seed: int) -> Trial:
        trials[name].append(one := trial(chosen[name].screening.setting, programs, rate, effort.run, seed))
        say(f"{name:34} {_line(one, slo)}")
        return one

    rates = _halved(chosen, effort.halvings, slo, run)
    found = {name: _found(chosen[name], rates[name], None, trials[name]) for name in chosen}
    doubtful = [name for name, finalist in chosen.items() if finalist.careful]
    for attempt in range(effort.retreats + 1):
        repeated: dict[str, list[float]] = {name: [] for name in doubtful}
        for number in range(effort.repeats):
            for name in doubtful:
                seed = REPEATED + attempt * effort.repeats + number
                repeated[name].append(run(name, rates[name], seed).worst())
        for name, worst in repeated.items():
            confirmed = statistics.median(worst) <= slo
            found[name] = _found(chosen[name], rates[name], confirmed, trials[name])
            if not confirmed:
                rates[name] *= DOWN
        doubtful = [name for name in doubtful if not found[name].confirmed]
    return found


def _halved(
    chosen: Mapping[str, Finalist], halvings: int, slo: float, run: Callable[[str, float, int], Trial]
) -> dict[str, float]:
    """The highest good rate of each that as many halvings find below a rate that was tried and is not good."""
    low = {name: LOWER * each.screening.capacity for name, each in chosen.items()}
    high = {name: UPPER * each.screening.capacity for name, each in chosen.items()}
    for name in chosen:
        for number in range(MOST_RAISES):
            if run(name, high[name], 2 + number).worst() > slo:
                break
            low[name] = high[name]
            high[name] *= RAISE
    for number in range(halvings):
        for name in chosen:
            rate = (low[name] + high[name]) / 2
            (low if run(name, rate, 10 + number).worst() <= slo else high)[name] = rate
    return low


def _found(finalist: Finalist, rate: float, confirmed: bool | None, trials: Sequence[Trial]) -> Sustained:
    """`confirmed` None: the P99 is that of the runs at this rate; infinite without one."""
    there = [each for each in trials if each.rate == rate]
    repeated = [each for each in there if each.seed >= REPEATED]
    p99 = statistics.median(each.worst() for each in repeated or there) if there else float("inf")
    return Sustained(finalist.screening.setting, rate, confirmed, p99, tuple(trials))


def _line(run: Trial, slo: float) -> str:
    p99 = "none" if run.p99 is None else f"{run.p99 * 1000:.0f} ms"
    lost = run.requests - run.answered
    verdict = "good" if run.worst() <= slo else "not good"
    beside = f" (neighbours took {run.neighbours:.0%} of a processor)" if run.neighbours > QUIET else ""
    return f"{run.rate:6.1f}/s  P99 {p99}{f', {lost} not answered' if lost else ''}: {verdict}{beside}"


def expected_steps(effort: Effort) -> int:
    """About how often `say` is called, for the estimate of the time left."""
    grouped = len({each.server for each in effort.settings if each.grouped})
    others = sum(each.plain for each in effort.settings) + grouped
    return 1 + len(effort.settings) + (3 + others) * (effort.halvings + 2) + 3 * (effort.repeats + 1) + 3 + others
