"""How often a playbook without effect is verified by chance, and how often one that halves P99 is.

The real engine in simulated time, on a FIFO queue whose load is stationary: every distinct combination of before,
settle and verify of the shipped playbooks, started 10 s after a bad window. What a mechanism shows is taken for met, as
it is where the load falls by itself: what is measured is the decision by latency and rates alone. Prints for each
pattern of load and each combination the share of runs that were verified, with its 95 % Wilson interval.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing import Pool
from pathlib import Path

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from bench.harness import arguments, markdown, print_result
from latdoctor.conditions.ast import Comparison, Reference, SignalTerm, comparisons, signals_of
from latdoctor.evaluation.statistics import proportion
from latdoctor.evidence.model import Evidence, Origin, Reading, Window
from latdoctor.http.client import Secret
from latdoctor.journal.entry import Moment
from latdoctor.remediation import actions
from latdoctor.remediation.change import Undo
from latdoctor.remediation.executor import execute
from latdoctor.remediation.observation import Observation
from latdoctor.remediation.planner import PlanRequest, build_plan
from latdoctor.remediation.playbook import Playbook, Step
from latdoctor.remediation.playbook_library import Library, shipped
from latdoctor.remediation.run_context import RunContext
from latdoctor.remediation.run_result import Outcome, Result
from latdoctor.remediation.target import Access, Target, TargetKind
from tests.remediation.simulated_service import AT, NAME, Remembered, Service, Setting

SERVICE = 0.005  # seconds for a request: 200 a second
HISTORY, WARM_UP, LONGEST = 600.0, 100.0, 900.0  # seconds
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

    def queue(self, seed: int) -> Queue:
        rng = np.random.default_rng(seed)
        seconds = WARM_UP + HISTORY + LONGEST
        steps = np.arange(0.0, seconds, 1.0)
        counts = rng.poisson(self.load(rng, steps) / SERVICE)
        arrivals = np.sort(np.repeat(steps, counts) + rng.random(int(counts.sum())))
        works = self._works(rng, len(arrivals)) * self.slower(rng, arrivals)
        total = np.cumsum(works)
        return Queue(arrivals, total + np.maximum.accumulate(arrivals - (total - works)))

    def _works(self, rng: np.random.Generator, count: int) -> Array:
        if not self.sigma:
            return rng.exponential(SERVICE, count)
        return rng.lognormal(np.log(SERVICE) - self.sigma**2 / 2, self.sigma, count)


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
    effect: float = 1.0

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


def _bad(queue: Queue) -> float:
    """The end of the first window after the history whose P99 is in the worst tenth, in seconds."""
    starts = np.arange(WARM_UP, WARM_UP + HISTORY + LONGEST / 2, BAD)
    p99 = [float(np.quantile(queue.answered(at, at + BAD), 0.99)) for at in starts]
    limit = np.quantile(p99, 0.9)
    later = (at for at, value in zip(starts, p99, strict=True) if at >= WARM_UP + HISTORY and value >= limit)
    return float(next(later, starts[int(np.argmax(p99))])) + BAD


def run(book: Playbook, queue: Queue, at: float, effect: float) -> Result:
    """One run of `book`, whose step is replaced by one in memory."""
    step = Step("set", NAME, Undo.RESTORE, {"scheduler": "token-budget"})
    book = replace(book, parts=(step,), targets=(TargetKind.REFERENCE,), preconditions=(), parameters=())
    service = SimulatedRun(now=at, queue_of=queue)
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
        )
        plan = build_plan(PlanRequest(book, {}), library, access, service.wall(), journal.clock())
        return execute(plan, library, context)


def cell(asked: tuple[str, int, int]) -> dict[str, dict[str, int]]:
    """The outcomes of `count` runs of every shape under one pattern, and of as many with effect at the first."""
    name, first, count = asked
    pattern = next(one for one in PATTERNS if one.name == name)
    found: dict[str, dict[str, int]] = {}
    for seed in range(first, first + count):
        queue = pattern.queue(seed)
        at = _bad(queue) + BAD
        for book_id, book in shapes().items():
            outcomes = found.setdefault(book_id, {})
            outcome = run(book, queue, at, 1.0).outcome
            outcomes[outcome] = outcomes.get(outcome, 0) + 1
            if pattern is PATTERNS[0]:
                verified = run(book, queue, at, 2.0).outcome is Outcome.VERIFIED
                outcomes["power"] = outcomes.get("power", 0) + verified
    return found


@dataclass
class Table:
    """Runs of each pattern and shape: how many, and how many verified; and those with effect."""

    runs: dict[str, dict[str, dict[str, int]]] = field(default_factory=dict)

    def add(self, pattern: str, found: Mapping[str, Mapping[str, int]]) -> None:
        rows = self.runs.setdefault(pattern, {})
        for book, outcomes in found.items():
            row = rows.setdefault(book, {})
            for outcome, count in outcomes.items():
                row[outcome] = row.get(outcome, 0) + count

    def cells(self) -> Iterator[tuple[str, str, int, int]]:
        """Pattern, playbook, verified, runs."""
        for pattern, rows in self.runs.items():
            for book, row in rows.items():
                yield pattern, book, row.get(Outcome.VERIFIED, 0), _count(row)

    def result(self) -> dict[str, object]:
        rates = {(p, b): proportion(verified, of) for p, b, verified, of in self.cells()}
        pooled = proportion(sum(v for _, _, v, _ in self.cells()), sum(of for *_, of in self.cells()))
        first = self.runs[PATTERNS[0].name].values()
        worst = max(rates.values(), key=lambda one: one.low or 0.0)
        return {
            "worst_rate": worst,
            "pooled_rate": pooled,
            "power_at_80": proportion(sum(row["power"] for row in first), sum(map(_count, first))),
            "cells": [
                {"pattern": p, "playbook": b, "rate": rate, "outcomes": self.runs[p][b]}
                for (p, b), rate in rates.items()
            ],
        }

    def text(self) -> str:
        books = next(iter(self.runs.values()))
        rows = [
            (book, *(f"{row[book].get(Outcome.VERIFIED, 0)} of {_count(row[book])}" for row in self.runs.values()))
            for book in books
        ]
        return "\n".join(markdown(("", *self.runs), rows))


def _count(row: Mapping[str, int]) -> int:
    return sum(count for outcome, count in row.items() if outcome != "power")


def main(argv: Sequence[str] | None = None) -> None:
    parser = arguments(__doc__)
    parser.add_argument("--runs", type=int, default=300, help="runs of each cell")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    asked = parser.parse_args(argv)
    step = max(1, min(20, asked.runs // asked.processes))
    parts = [
        (pattern.name, first, min(step, asked.seed + asked.runs - first))
        for pattern in PATTERNS
        for first in range(asked.seed, asked.seed + asked.runs, step)
    ]
    table = Table()
    with Pool(asked.processes) as pool:
        for (name, _, _), found in zip(parts, pool.imap(cell, parts), strict=True):
            table.add(name, found)
    print_result(table.result(), asked.output, table.text())


if __name__ == "__main__":
    main()
