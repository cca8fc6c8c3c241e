"""How often a playbook without effect is verified by chance, and how often one that halves P99 is.

The real engine in simulated time, on a FIFO queue whose load is stationary: every distinct combination of before,
settle and verify of the shipped playbooks, started 10 s after a bad window; once with a history of ten minutes, and
once without one, where the proof goes on after the run. What a mechanism shows is taken for met, as it is where the
load falls by itself: what is measured is the decision by latency and rates alone. Prints for each pattern of load and
each combination the runs that were verified; `--output json` adds 95 % Wilson intervals.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing import Pool
from pathlib import Path

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from bench.harness import arguments, markdown, print_result
from latdoctor.conditions.ast import Comparison, Reference, SignalTerm, comparisons, signals_of
from latdoctor.evaluation.statistics import proportion
from latdoctor.evidence.model import Evidence, Origin, Reading, Series, Window
from latdoctor.http.client import Secret
from latdoctor.journal.entry import Moment
from latdoctor.remediation import actions
from latdoctor.remediation.change import Undo
from latdoctor.remediation.executor import execute
from latdoctor.remediation.history import History, of_series
from latdoctor.remediation.observation import Observation
from latdoctor.remediation.planner import PlanRequest, build_plan
from latdoctor.remediation.playbook import Playbook, Step
from latdoctor.remediation.playbook_library import Library, shipped
from latdoctor.remediation.run_context import RunContext
from latdoctor.remediation.run_result import Outcome
from latdoctor.remediation.target import Access, Target, TargetKind
from tests.remediation.simulated_service import AT, NAME, Remembered, Service, Setting

CAPACITY = 200.0  # requests a second
HISTORY, WARM_UP, LONGEST = 600.0, 100.0, 900.0  # seconds
EFFECT, IN_TIME = 2.0, 60.0  # by which a change with effect divides latencies; seconds from it to its proof
BAD = 10.0  # seconds of the bad window, and from its end to the run
Array = NDArray[np.float64]
LATENCIES = ("latency.p50", "latency.p99", "router.latency.p99")
RATES = ("completion.rate", "arrival.rate", "arrival.first_rate", "router.arrival_rate")
SIMULATED = frozenset((*LATENCIES, *RATES, "error.ratio", "queue.depth"))


@dataclass(frozen=True, eq=False)
class Queue:
    """A FIFO queue: when requests arrive and when they are answered, in seconds, both ascending."""

    arrivals: Array
    answers: Array

    def answered(self, start: float, end: float) -> Array:
        """The seconds from arrival to answer of what was answered from `start` to `end`."""
        first, last = np.searchsorted(self.answers, (start, end))
        return self.answers[first:last] - self.arrivals[first:last]

    def arrived(self, start: float, end: float) -> int:
        first, last = np.searchsorted(self.arrivals, (start, end))
        return int(last - first)

    def waiting(self, at: float) -> int:
        return int(np.searchsorted(self.arrivals, at) - np.searchsorted(self.answers, at))


@dataclass(frozen=True)
class Pattern:
    """Stationary load. `load` and `slower` give for times in seconds the utilisation, and a factor on service times."""

    name: str
    load: Callable[[np.random.Generator, Array], Array]
    slower: Callable[[np.random.Generator, Array], Array] = lambda rng, at: np.ones_like(at)
    sigma: float = 0.0  # of log-normal service times; 0: exponential

    def queue(self, seed: int, capacity: float) -> Queue:
        rng = np.random.default_rng(seed)
        seconds = WARM_UP + HISTORY + LONGEST
        steps = np.arange(0.0, seconds, 1.0)
        counts = rng.poisson(self.load(rng, steps) * capacity)
        arrivals = np.sort(np.repeat(steps, counts) + rng.random(int(counts.sum())))
        works = self._works(rng, len(arrivals)) * self.slower(rng, arrivals) / capacity
        total = np.cumsum(works)
        return Queue(arrivals, total + np.maximum.accumulate(arrivals - (total - works)))

    def _works(self, rng: np.random.Generator, count: int) -> Array:
        if not self.sigma:
            return rng.exponential(1.0, count)
        return rng.lognormal(-(self.sigma**2) / 2, self.sigma, count)


def _constant(load: float) -> Callable[[np.random.Generator, Array], Array]:
    return lambda rng, at: np.full_like(at, load)


def _noisy(rng: np.random.Generator, at: Array) -> Array:
    levels = 0.92 * (1 + 0.06 * rng.standard_normal(int(at[-1] // 20) + 1))
    return levels[(at // 20).astype(int)]


def _neighbour(period: float) -> Callable[[np.random.Generator, Array], Array]:
    def slower(rng: np.random.Generator, at: Array) -> Array:
        return np.where(((at + rng.uniform(0, 2 * period)) // period) % 2 == 0, 1.5, 1.0)

    return slower


PATTERNS = (
    *(Pattern(f"M/M/1 {load:.0%}", _constant(load)) for load in (0.8, 0.9, 0.97)),
    Pattern("heavy-tailed 85%", _constant(0.85), sigma=1.5),
    Pattern("rate noise 6%, 20 s", _noisy),
    Pattern("neighbour on/off 20 s", _constant(0.7), _neighbour(20.0)),
    Pattern("neighbour on/off 60 s", _constant(0.7), _neighbour(60.0)),
)


@dataclass
class SimulatedRun(Service):
    """A service that shows `queue_of` from `now` on; with `effect` a change divides every response time by it."""

    queue_of: Queue = field(kw_only=True)
    remembers: float = 0.0  # seconds of history
    effect: float = 1.0

    def history(self, step: float) -> History:
        """What a source would remember of the time until now."""
        found: dict[tuple[str, str], list[tuple[float, float]]] = {}
        for number in range(int(self.remembers // step), 0, -1):
            end = self.now - (number - 1) * step
            for key, value in self.seen(end - step, end).values.items():
                found.setdefault(key, []).append((AT + end, value))
        series = [Series(*key, *map(tuple, zip(*points, strict=True)), Origin("page")) for key, points in found.items()]
        return of_series(series, step, self.wall(), "simulated")

    def observe(self, seconds: float) -> Observation:
        start, end = self.now, self.now + seconds
        self.now = end
        return self.seen(start, end)

    def seen(self, start: float, end: float) -> Observation:
        changed = bool(self.writes)
        latencies = self.queue_of.answered(start, end) / (self.effect if changed else 1.0)
        arrived = self.queue_of.arrived(start, end) / (end - start)
        p50, p99 = map(float, np.quantile(latencies, (0.5, 0.99))) if len(latencies) else (np.nan, np.nan)
        rows = {
            "latency.p50": p50,
            "latency.p99": p99,
            "completion.rate": len(latencies) / (end - start),
            "error.ratio": 0.0,
        }
        rows |= {"arrival.rate": arrived, "arrival.first_rate": arrived, "router.arrival_rate": arrived}
        rows |= {"router.latency.p99": p99, "queue.depth": float(self.queue_of.waiting(end))}
        window = Window(AT + start, AT + end)
        readings = tuple(Reading(name, "service", value, Origin("page"), window) for name, value in rows.items())
        return Observation(Evidence(readings=readings), {}, {"slo.p99": 0.5}, AT + start, AT + end)


def shapes() -> dict[str, Playbook]:
    """The shipped playbooks that lower a latency, one of each combination of before, settle and verify.

    Conditions of success on other signals than those simulated are left out: they are taken for met by chance.
    """
    found: dict[tuple[object, ...], Playbook] = {}
    for book in shipped().playbooks:
        succeed = tuple(one for one in book.verify.succeed if SIMULATED.issuperset(signals_of(one)))
        if any(_lowers_latency(one) for condition in succeed for one in comparisons(condition)):
            verify = replace(book.verify, succeed=succeed, mechanism=(), abort=())
            found.setdefault((book.before, book.settle, verify), replace(book, verify=verify))
    return {book.id: book for book in found.values()}


def _lowers_latency(comparison: Comparison) -> bool:
    limit = comparison.right
    lower = isinstance(limit, Reference) and limit.of == "before" and limit.factor < 1
    return lower and isinstance(comparison.left, SignalTerm) and comparison.left.signal in LATENCIES


def _demanded(book: Playbook) -> float:
    """The lowest factor on a latency that it demands."""
    found = (one for condition in book.verify.succeed for one in comparisons(condition) if _lowers_latency(one))
    return min(one.right.factor for one in found if isinstance(one.right, Reference))


def _bad(queue: Queue) -> float:
    """The end of the first window after the history whose P99 is in the worst tenth, in seconds."""
    starts = np.arange(WARM_UP, WARM_UP + HISTORY + LONGEST / 2, BAD)
    answered = [queue.answered(at, at + BAD) for at in starts]
    p99 = [float(np.quantile(found, 0.99)) if len(found) else np.inf for found in answered]
    limit = np.quantile(p99, 0.9)
    later = (at for at, value in zip(starts, p99, strict=True) if at >= WARM_UP + HISTORY and value >= limit)
    return float(next(later, starts[int(np.argmax(p99))])) + BAD


def run(book: Playbook, queue: Queue, at: float, effect: float, history: float) -> tuple[str, float]:
    """The outcome of `book`, whose step is replaced by one in memory, and the seconds from the change to the end."""
    step = Step("set", NAME, Undo.RESTORE, {"scheduler": "token-budget"})
    book = replace(book, parts=(step,), targets=(TargetKind.REFERENCE,), preconditions=(), parameters=())
    service = SimulatedRun(now=at, queue_of=queue, remembers=history)
    service.effect = effect
    actions.ACTIONS = (*(one for one in actions.ACTIONS if one.name != NAME), Setting(service))
    library = Library((book,))
    with tempfile.TemporaryDirectory() as folder:
        journal = Remembered.opened(Path(folder) / "journal", lambda: Moment("", service.now, "boot"))
        access = Access(Target("service", TargetKind.REFERENCE, admin="http://memory"), Secret(""))
        context = RunContext(
            journal=journal,
            state=Path(folder),
            access=access,
            observe=service.observe,
            save_bundle=lambda bundle, path: None,
            now=service.wall,
            clock=service.clock,
            sleep=service.sleep,
            history=service.history,
        )
        plan = build_plan(PlanRequest(book, {}), library, access, service.wall(), journal.clock())
        result = execute(plan, library, context)
    return result.outcome, service.now - service.changed_at


@dataclass(frozen=True)
class Asked:
    """`count` runs of every shape under one pattern of load, from the seed `first` on; `history` in seconds."""

    pattern: str
    history: float
    first: int
    count: int
    capacity: float
    effect: float


@dataclass
class Row:
    """The runs of one cell: their outcomes, and of those with effect how many were verified, and how many in time."""

    outcomes: dict[str, int] = field(default_factory=dict)
    effective: int = 0
    verified: int = 0
    in_time: int = 0

    @property
    def runs(self) -> int:
        return sum(self.outcomes.values())

    @property
    def wrong(self) -> int:
        return self.outcomes.get(Outcome.VERIFIED, 0)

    def add(self, other: Row) -> None:
        for outcome, count in other.outcomes.items():
            self.outcomes[outcome] = self.outcomes.get(outcome, 0) + count
        self.effective += other.effective
        self.verified += other.verified
        self.in_time += other.in_time


def measured(asked: Asked) -> dict[str, Row]:
    """By playbook: runs without effect, and under the first pattern as many with effect."""
    rows: dict[str, Row] = {}
    pattern = next(one for one in PATTERNS if one.name == asked.pattern)
    for seed in range(asked.first, asked.first + asked.count):
        queue = pattern.queue(seed, asked.capacity)
        at = _bad(queue) + BAD
        for name, book in shapes().items():
            row = rows.setdefault(name, Row())
            outcome, _ = run(book, queue, at, 1.0, asked.history)
            row.outcomes[outcome] = row.outcomes.get(outcome, 0) + 1
            if pattern is PATTERNS[0] and _demanded(book) >= 1 / asked.effect:
                outcome, seconds = run(book, queue, at, asked.effect, asked.history)
                verified = outcome is Outcome.VERIFIED
                row.add(Row({}, 1, int(verified), int(verified and seconds <= IN_TIME)))
    return rows


Table = dict[tuple[str, str, float], Row]  # by pattern, playbook and seconds of history


def result(table: Table) -> dict[str, object]:
    rates = {key: proportion(row.wrong, row.runs) for key, row in table.items()}
    with_history = [row for (*_, history), row in table.items() if history]
    return {
        "worst_rate": max(rates.values(), key=lambda one: one.low or 0.0),
        "pooled_rate": proportion(sum(row.wrong for row in table.values()), sum(row.runs for row in table.values())),
        "power_at_80": proportion(sum(row.in_time for row in with_history), sum(row.effective for row in with_history)),
        "cells": [
            {"pattern": key[0], "playbook": key[1], "history_s": key[2], "rate": rates[key], "outcomes": row.outcomes}
            | ({"power": proportion(row.verified, row.effective)} if row.effective else {})
            for key, row in table.items()
        ],
    }


def text(table: Table, effect: float) -> str:
    """The runs that were verified, of those without effect, by playbook and pattern; and of those with effect."""
    patterns = list(dict.fromkeys(pattern for pattern, _, _ in table))
    heads = dict.fromkeys((book, history) for _, book, history in table)
    rows = []
    for book, history in heads:
        cells = [table[pattern, book, history] for pattern in patterns]
        found = [f"{row.wrong} of {row.runs}" for row in cells]
        power = f"{cells[0].verified} of {cells[0].effective}" if cells[0].effective else ""
        rows.append((book, f"{history:.0f} s", *found, power))
    return "\n".join(markdown(("", "history", *patterns, f"{effect:g} x better"), rows))


def main(argv: Sequence[str] | None = None) -> None:
    parser = arguments(__doc__)
    parser.add_argument("--runs", type=int, default=300, help="runs of each cell")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--capacity", type=float, default=CAPACITY, help="requests a second that can be answered")
    parser.add_argument("--effect", type=float, default=EFFECT, help="by which a change with effect divides latencies")
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args(argv)
    step = max(1, min(20, given.runs // given.processes))
    parts = [
        Asked(pattern.name, history, first, min(step, given.seed + given.runs - first), given.capacity, given.effect)
        for history in (HISTORY, 0.0)
        for pattern in PATTERNS
        for first in range(given.seed, given.seed + given.runs, step)
    ]
    table: Table = {}
    with Pool(given.processes) as pool:
        for asked, rows in zip(parts, pool.imap(measured, parts), strict=True):
            for book, row in rows.items():
                table.setdefault((asked.pattern, book, asked.history), Row()).add(row)
    print_result(result(table), given.output, text(table, given.effect))


if __name__ == "__main__":
    main()
