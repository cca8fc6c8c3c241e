"""Queries to a Prometheus server in one collection, as a value stored with their results."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec
from msgspec import Struct, field

from latdoctor.collectors.base import PrometheusServer
from latdoctor.collectors.promql.client import PromqlQuery, QueryResult
from latdoctor.decode_errors import UNDECODABLE
from latdoctor.dialects import promql
from latdoctor.dialects.loader import shipped
from latdoctor.dialects.model import Dialect
from latdoctor.errors import SourceError
from latdoctor.sanitize import clean

STEPS = 10  # of the judged window, as in a live collection
CURVE_STEPS, MAX_CURVE_STEPS = 60, 240  # of the history: so many at least, and at most
MAX_TARGETS = 64
PACE = 30.0  # seconds; default scrape interval
FEWEST = 4  # samples for a reliable rate
SAMPLES_A_STEP = 2  # so that only neighbouring points of a curve share samples
_NAMES_AT_ONCE = 90  # Prometheus resolves up to a hundred literal names by index; beyond that it matches each name
# Signals searched for changes: latency, load, queues, and the hardware.
CURVES = (
    "latency",
    "latency.mean",
    "ttft",
    "itl",
    "arrival.rate",
    "completion.rate",
    "error.rate",
    "error.ratio",
    "queue.depth",
    "queue.time",
    "queue.time.mean",
    "compute.time.mean",
    "batch.size.mean",
    "batch.tokens.mean",
    "input.length.mean",
    "output.length.mean",
    "requests.running",
    "kv.usage",
    "kv.preemption_rate",
    "prefix_cache.hit_ratio",
    "server.rss",
    "alloc.reserved",
    "gpu.utilization",
    "gpu.sm_active",
    "gpu.sm_clock",
    "gpu.temperature",
    "gpu.power",
    "gpu.memory_used",
    "gpu.memory_used_ratio",
    "host.cpu.busy_ratio",
    "host.load_per_cpu",
    "host.memory.available_ratio",
    "host.psi.cpu_some",
    "host.psi.io_some",
)

# Beside these, what playbooks compare with its level before a change.
LEVELS = (
    *CURVES,
    "router.latency",
    "router.arrival_rate",
    "router.completion_rate",
    "arrival.first_rate",
    "dependency.time.mean",
    "session.history.mean",
)
_JITTER = 0.1  # of the scrape interval

FOUND, PAST, NAMES, COVER, COUNT, UP, ANSWERED = "found", "past", "names", "cover", "count", "up", "answered"
SCRAPING = "scraping"
LAST, GROWTH, LEVEL, CURVE = "last", "growth", "level", "curve"


class PlannedQuery(Struct, frozen=True):
    """One query and the artifact of its result; `names` are the samples that it covers."""

    role: str
    expression: str
    end: float
    start: float = 0.0
    step: float = 0.0
    names: tuple[str, ...] = ()
    dialect: str = ""
    signal: str = ""
    factor: float = 1.0
    artifact: str = ""  # empty if there is no result

    @property
    def question(self) -> PromqlQuery:
        return PromqlQuery(self.expression, self.end, self.start, self.step)


class QueryPlan(Struct, frozen=True):
    """The last `window` seconds before `until` are judged; the time from `since` on is the history.

    `pace` is the scrape interval of the target that is scraped least often, seconds.
    """

    since: float
    until: float
    window: float
    select: tuple[str, ...] = ()
    pace: float = PACE
    every: float = 0.0  # as in PrometheusServer
    queries: tuple[PlannedQuery, ...] = field(default=(), name="asked")

    @property
    def start(self) -> float:
        return self.until - self.window

    @property
    def step(self) -> float:
        return self.window / STEPS

    @property
    def curve_step(self) -> float:
        """Seconds between two points of a curve: as short as the scrape interval allows, within bounds."""
        if self.every:
            return self.every if self.pace <= self.every * (1 + _JITTER) else float(round(self.pace))
        span = self.until - self.since
        step = max(span / MAX_CURVE_STEPS, min(SAMPLES_A_STEP * self.pace, span / CURVE_STEPS))
        return float(math.ceil(step)) if step > 1 else step  # whole seconds: the last point is at the very end

    @property
    def curve_start(self) -> float:
        """The first point of a curve whose last point is at the end of the window."""
        return self.until - math.floor((self.until - self.since) / self.curve_step + 1e-6) * self.curve_step

    @property
    def reach(self) -> float:
        """Range of each point of a curve, seconds: several samples, since a rate needs at least two.

        It is no longer than that: points that share samples are no independent evidence of a change.
        """
        if self.every:  # the growth from one sample to the one that is `curve_step` later
            return self.curve_step + self.pace * (1 + _JITTER)
        return max(self.curve_step, FEWEST * self.pace)


def plan_for(server: PrometheusServer) -> QueryPlan:
    window = min(server.window, server.until - server.since)
    return QueryPlan(server.since, server.until, window, server.select, every=server.every)


def parse_plan(raw: bytes, where: str) -> QueryPlan:
    """Raises SourceError for an invalid plan."""
    try:
        plan = msgspec.json.decode(raw, type=QueryPlan)
    except UNDECODABLE as error:
        raise SourceError("its query plan cannot be read", where=where) from error
    if not (0 < plan.window <= plan.until - plan.since < float("inf")):
        raise SourceError("the times of its query plan are invalid", where=where)
    return plan


def discovery_queries(plan: QueryPlan, dialects: Sequence[Dialect]) -> Iterator[PlannedQuery]:
    """Find the targets of each dialect by the families that identify it."""
    families = sorted({name for dialect in dialects for name in dialect.recognise})
    names = [*families, *(f"{name}_bucket" for name in families)]
    yield from _names(plan, FOUND, names, plan.select)
    if plan.since < plan.start:  # a server that is down has no samples within the window
        yield from _names(plan, PAST, names, plan.select, plan.until - plan.since)


def target_queries(plan: QueryPlan, dialects: Sequence[Dialect], chosen: Sequence[str]) -> Iterator[PlannedQuery]:
    """Find the samples of the targets, since when they exist, how often they are scraped, and whether they were up."""
    yield from _names(plan, NAMES, sorted(promql.all_sample_names(dialects)), chosen)
    over, fine = promql.duration(plan.window), promql.duration(plan.window / 300)
    up = promql.format_selector("up", chosen)
    yield PlannedQuery(COVER, f"min_over_time(timestamp({up})[{over}:{fine}])", plan.until, names=("up",))
    yield PlannedQuery(COUNT, f"count_over_time({up}[{over}])", plan.until, names=("up",))
    # The time of the last successful scrape. A sample is current until the next: a finer step gives no more.
    every = promql.duration(max(plan.window / 300, (plan.until - plan.since) / 3600))
    past = promql.duration(plan.until - plan.since)
    yield PlannedQuery(ANSWERED, f"max_over_time((timestamp({up}) * {up})[{past}:{every}])", plan.until, names=("up",))
    yield PlannedQuery(SCRAPING, "count(up)", plan.until, names=("up",))
    # Targets without a dialect matter only if the user selected them.
    up = promql.format_selector("up", plan.select or chosen)
    yield PlannedQuery(UP, up, plan.until, plan.curve_start - 2 * plan.curve_step, plan.curve_step, ("up",))


def _names(
    plan: QueryPlan, role: str, names: Sequence[str], chosen: Sequence[str], seconds: float = 0.0
) -> Iterator[PlannedQuery]:
    """The targets and sample names of the judged window, or of the last `seconds`."""
    over = promql.duration(seconds or plan.window)
    for start in range(0, len(names), _NAMES_AT_ONCE):
        part = tuple(names[start : start + _NAMES_AT_ONCE])
        inside = ",".join((promql.name_matcher(part), *chosen))
        counted = f"count by (__name__, job, instance) (last_over_time({{{inside}}}[{over}]))"
        yield PlannedQuery(role, counted, plan.until, names=part)


def sample_queries(
    plan: QueryPlan, dialects: Sequence[Dialect], present: Mapping[str, frozenset[str]], select: Sequence[str]
) -> Iterator[PlannedQuery]:
    """Query the value, growth and history of the samples that are `present` (by dialect)."""
    counters: set[str] = set()
    levels: dict[str, str] = {}
    for dialect in dialects:
        needed = promql.sample_names(dialect)
        counters |= needed.counters & present[dialect.id]
        for name, way in needed.levels:
            if name in present[dialect.id]:  # read in two ways by two dialects: unaggregated
                levels[name] = way if levels.get(name, way) == way else promql.RAW
    for names, expression in promql.last_value_queries(counters, select):
        yield PlannedQuery(LAST, expression, plan.until, names=names)
    for names, expression in promql.growth_queries(counters, plan.window, select):
        yield PlannedQuery(GROWTH, expression, plan.until, names=names)
    for name in counters & levels.keys():
        del levels[name]
    for names, expression in promql.gauge_queries(levels.items(), plan.step, select):
        yield PlannedQuery(LEVEL, expression, plan.until, plan.start, plan.step, names)
    for dialect in dialects:
        for curve in promql.curve_queries(dialect, LEVELS if plan.every else CURVES, present[dialect.id]):
            expression = curve.expression.replace("$range", promql.duration(plan.reach))
            expression = expression.replace("{$select}", f"{{{','.join(select)}}}" if select else "")
            expression = expression.replace(",$select", "".join(f",{one}" for one in select))
            names = tuple(sorted(curve.names))
            yield PlannedQuery(
                CURVE, expression, plan.until, plan.curve_start, plan.curve_step, names, dialect.id, curve.signal,
                curve.factor,
            )  # fmt: skip


@dataclass(frozen=True, slots=True, order=True)
class PrometheusTarget:
    """A scrape target of Prometheus: one server or exporter."""

    instance: str
    job: str

    @staticmethod
    def of(labels: Mapping[str, str]) -> PrometheusTarget:
        return PrometheusTarget(labels.get("instance", ""), labels.get("job", ""))


def target_names(targets: Iterable[PrometheusTarget], otherwise: str) -> dict[PrometheusTarget, str]:
    """Name each target by its instance, and by its job too if two jobs scrape one instance."""
    known = sorted(targets)
    instances = [one.instance for one in known]
    return {
        one: clean((one.instance or otherwise) + (f"/{one.job}" if instances.count(one.instance) > 1 else ""), 200)
        for one in known
    }


def samples_by_target(answers: Sequence[QueryResult]) -> dict[PrometheusTarget, frozenset[str]]:
    """The sample names of each target."""
    found: dict[PrometheusTarget, set[str]] = {}
    for line in (line for answer in answers for line in answer.lines):
        name = line.labels.get("__name__", "")
        if name:
            found.setdefault(PrometheusTarget.of(line.labels), set()).add(name)
    return {target: frozenset(names) for target, names in found.items()}


def dialects_of(names: frozenset[str]) -> tuple[Dialect, ...]:
    """The dialects whose families are among the sample `names`."""
    return tuple(
        dialect
        for dialect in shipped()
        if any(family in names or f"{family}_bucket" in names for family in dialect.recognise)
    )


def ranked_targets(samples: Mapping[PrometheusTarget, frozenset[str]]) -> list[PrometheusTarget]:
    """The targets with a dialect: servers first, then GPU exporters, then machines.

    A company has more machines than servers, and the number of targets is limited.
    """
    ranks = {target: _rank(dialects_of(names)) for target, names in samples.items()}
    return sorted((target for target in samples if ranks[target]), key=lambda target: (ranks[target], target))


def serving_targets(samples: Mapping[PrometheusTarget, frozenset[str]]) -> list[PrometheusTarget]:
    """The targets that serve requests; if there are none, all with a dialect."""
    found = ranked_targets(samples)
    return [target for target in found if _rank(dialects_of(samples[target])) == 1] or found


def serves_requests(names: frozenset[str]) -> bool:
    """Whether the target with these sample names is an inference server, and not an exporter of hardware."""
    return _rank(dialects_of(names)) == 1


def _rank(dialects: Sequence[Dialect]) -> int:
    """1 is read first; 0 means no dialect."""
    signals = frozenset(signal for dialect in dialects for signal in dialect.signals)
    if not signals:
        return 0
    if any(not signal.startswith(("gpu.", "host.")) for signal in signals):
        return 1
    return 2 if any(signal.startswith("gpu.") for signal in signals) else 3
