"""Types of a dialect: how one server or exporter names the quantities of the signal catalogue."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct

from latdoctor.dialects.metrics_page_model import MetricSample, MetricsPage
from latdoctor.evidence.model import Bucket
from latdoctor.gap_code import GapCode
from latdoctor.sanitize import clean


class Unusable(Struct, frozen=True):
    """Why a value of the page cannot be used."""

    reason: str
    code: GapCode
    next_step: str = ""


class Histogram(Struct, frozen=True):
    """Observations per bucket within the window in the page's own unit, and their sum if known."""

    buckets: tuple[Bucket, ...]
    total: float | None

    @property
    def count(self) -> float:
        return sum(bucket.count for bucket in self.buckets)


class RuleValue(Struct, frozen=True):
    """A value in base units, a text, or a histogram; `place` names its samples.

    `first` and `last` are the indexes of the pages that had it; negative numbers count from the end.
    """

    value: float | str | Histogram
    place: str
    note: str = ""
    first: int = 0
    last: int = -1

    @property
    def is_finite(self) -> bool:
        """False if a sum of huge numbers overflowed."""
        if isinstance(self.value, Histogram):
            return math.isfinite(self.value.count)
        return isinstance(self.value, str) or math.isfinite(self.value)


class MissingSamples(Struct, frozen=True):
    """The pages have none of the samples of the rule. `declared`: the metric is exposed, but without a sample yet."""

    names: tuple[str, ...]
    declared: bool = False


# Results by subject; None applies to all subjects.
RuleResult = Mapping[str | None, RuleValue | Unusable]


def join_notes(*parts: str) -> str:
    """Join the non-empty parts of a note."""
    return "; ".join(part for part in parts if part)


class RuleKind(StrEnum):
    """How a rule computes its value; see `Rule`."""

    GAUGE = "gauge"
    SLOPE = "slope"
    RATE = "rate"
    GROWTH = "growth"
    RATIO = "ratio"
    HISTOGRAM = "histogram"
    SUMMARY = "summary"
    LABEL = "label"


class Take(StrEnum):
    """How a gauge reduces several pages to one value. `current`: see `current_level`."""

    MEAN = "mean"
    FIRST = "first"
    LAST = "last"
    MAX = "max"
    CURRENT = "current"


PLACEHOLDER = re.compile(r"\{([a-zA-Z_][a-zA-Z0-9_]*)\}")
MAX_SUBJECTS = 256  # of a page, where its dialect says no other number
SERVER = "server"  # the subject server/NAME as a `parent`


class LabelMatch(Struct, frozen=True):
    """`label="a|b"`: one of the values; negated with `!=`."""

    label: str
    values: tuple[str, ...]
    negated: bool = False


class Selector(Struct, frozen=True):
    """Samples of one name with a label filter: `x{reason="stop|length"}`."""

    name: str
    matches: tuple[LabelMatch, ...] = ()

    def accepts(self, sample: MetricSample) -> bool:
        return all((sample.label(match.label) in match.values) != match.negated for match in self.matches)

    def __str__(self) -> str:
        inside = ",".join(
            f'{m.label}{"!=" if m.negated else "="}"{clean("|".join(m.values), 80)}"' for m in self.matches
        )
        return f"{self.name}{{{inside}}}" if inside else self.name


class Term(Struct, frozen=True):
    """Alternative names of one quantity in order of preference; the first one on a page is used."""

    options: tuple[Selector, ...]

    def __str__(self) -> str:
        return str(self.options[0])


class NoValueRange(Struct, frozen=True):
    """A range of numbers, inclusive, that an exporter uses as "no value"."""

    low: float
    high: float


class Rule(Struct, frozen=True):
    """One way to compute a signal. `terms` are summed, and so are `over`; values are multiplied by `factor`.

        gauge      the value, minus `less`, or divided by the sum of `over`; `take` selects among several pages
        slope      change of the gauge per second from the first third of the pages to the last; may be negative
        rate       growth of the counters per second; `held` are gauges whose growth is added (requests in flight)
        ratio      growth of the counters `terms` divided by the growth of `over`
        histogram  a Distribution from the buckets of `terms[0]`
        summary    the `quantile` computed by the server itself
        label      the text of `label` on the samples of `terms`, or on any sample of the dialect

    `by` is a label whose values are kept separate: one labelled reading each, of which only `terms` are narrowed.
    `at_least`: the server counts only some of what the signal means.
    `series` requests a gauge on every page, or the rate between consecutive pages, as well.
    """

    signal: str
    kind: RuleKind
    where: str  # file:line, for messages
    terms: tuple[Term, ...] = ()
    over: tuple[Term, ...] = ()
    less: tuple[Term, ...] = ()
    held: tuple[Term, ...] = ()
    quantile: float = 0.0
    label: str = ""
    factor: float = 1.0
    percent_or_ratio: bool = False
    take: Take = Take.MEAN
    sum_over: tuple[str, ...] = ()
    by: str = ""
    series: bool = False
    blank_from: float | None = None
    note: str = ""
    zero_note: str = ""
    hint: str = ""
    at_least: bool = False


class BitMask(Struct, frozen=True):
    """Signals that are 1 while a bit of their mask is set in a gauge, else 0."""

    rule: Rule
    masks: tuple[tuple[str, int], ...]


class SubjectRule(Struct, frozen=True):
    """`model/{model}`: the subject of a sample that has all the named labels; `parent` is a template, or `server`.

    The server's name is appended (`model/m@localhost:8000`): two servers may serve one model, and GPU 0 of an exporter
    need not be GPU 0 of NVML. A `parent` template is used unchanged.

    `apart` are labels that split the subject if one page has several of their values (two versions of a model, two
    engines), so that nothing is averaged over them.
    """

    id: str
    labels: tuple[str, ...]
    parent: str = ""
    parent_labels: tuple[str, ...] = ()
    apart: tuple[str, ...] = ()


# What the counters of a rate grew by between the pages, and the mean of the time before them; see `standstill`.
COUNTS: Mapping[str, str] = {
    "version.request_rate": "version.requests",
    "version.error_rate": "version.errors",
    "arrival.rate": "arrival.count",
    "completion.rate": "completion.count",
    "output.token_rate": "output.token_count",
    "input.token_rate": "input.token_count",
    "kv.preemption_rate": "kv.preemption_count",
    "http.answer_rate": "http.answer_count",
}
# Rates whose share of all requests two pages show also where the time between them is unknown.
SHARES: Mapping[str, str] = {
    "queue.rejected_rate": "queue.rejected_share",
    "gateway.reset_rate": "gateway.reset_share",
    "gateway.retry_rate": "gateway.retry_share",
    "gateway.timeout_rate": "gateway.timeout_share",
}
ARRIVALS = "arrival.rate"
OUTPUT_LENGTH = "output.length.mean"
# What is compared with its past, and that past's signal.
PAST: Mapping[str, str] = {
    "latency.mean": "latency.past_mean",
    "compute.time.mean": "compute.past_mean",
    "batch.size.mean": "batch.past_mean",
    "ttft.mean": "ttft.before",
    "queue.time.mean": "queue.time.before",
    "input.rows.mean": "input.rows.before",
    "itl.mean": "itl.before",
    OUTPUT_LENGTH: "output.length.before",
    "output.cut_share": "output.cut_before",
    "output.per_input": "output.per_input_before",
    "input.length.mean": "input.length.before",
    "prefix_cache.hit_ratio": "prefix_cache.hit_before",
}
RUNNING, RUNNING_MEAN, RUNNING_MOST = "requests.running", "requests.running_mean", "requests.running_most"


class Dialect(Struct, frozen=True):
    """One server or exporter. `idle` are samples that are all zero for an unused subject.

    `most_subjects`: further models, pods or GPUs on one page are left unread.
    `cached`: the exporter refreshes its numbers on a schedule of its own, so that two pages may be one reading.
    """

    id: str
    title: str
    recognise: tuple[str, ...]
    subjects: tuple[SubjectRule, ...] = ()
    rules: tuple[tuple[Rule, ...], ...] = ()  # per signal, alternatives in order of preference
    bits: tuple[BitMask, ...] = ()
    blanks: tuple[NoValueRange, ...] = ()
    idle: tuple[Term, ...] = ()
    cached: bool = False
    hint: str = ""
    most_subjects: int = MAX_SUBJECTS

    @property
    def signals(self) -> frozenset[str]:
        """Every signal that the dialect may yield."""
        direct = {options[0].signal for options in self.rules}
        rates = {one.signal for options in self.rules for one in options if one.kind == RuleKind.RATE}
        ratios = {one.signal for options in self.rules for one in options if one.kind == RuleKind.RATIO}
        derived = {COUNTS[signal] for signal in rates & COUNTS.keys()} | {
            PAST[signal] for signal in ratios & PAST.keys()
        }
        derived |= {SHARES[signal] for signal in rates & SHARES.keys()} if ARRIVALS in rates else set()
        derived |= {RUNNING_MEAN, RUNNING_MOST} if RUNNING in direct else set()
        return frozenset(direct | derived | {signal for bits in self.bits for signal, _ in bits.masks})

    def speaks(self, page: MetricsPage) -> bool:
        """Whether `page` belongs to this dialect. A family declared without a sample counts."""
        return any(name in page.samples or name in page.kinds for name in self.recognise)


_NAME = re.compile(r"\s*([a-zA-Z_:][a-zA-Z0-9_:]*)\s*")
_MATCH = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*(!?=)\s*"([^"]*)"\s*')


def parse_term(text: str) -> Term:
    """Parse `a | b{c="d"}` into its alternatives. Raises ValueError."""
    options: list[Selector] = []
    rest = text
    while True:
        name = _NAME.match(rest)
        if not name:
            raise ValueError(f"{text!r} is not a sample name with an optional label filter")
        rest = rest[name.end() :]
        matches: tuple[LabelMatch, ...] = ()
        if rest.startswith("{"):
            matches, rest = _filter(text, rest[1:])
        options.append(Selector(name[1], matches))
        rest = rest.strip()
        if not rest:
            return Term(tuple(options))
        if not rest.startswith("|"):
            raise ValueError(f"{text!r}: expected '|' before {rest!r}")
        rest = rest[1:]


def _filter(text: str, rest: str) -> tuple[tuple[LabelMatch, ...], str]:
    matches: list[LabelMatch] = []
    while True:
        found = _MATCH.match(rest)
        if not found:
            raise ValueError(f'{text!r}: a label filter is written {{label="a|b",other!="c"}}')
        matches.append(LabelMatch(found[1], tuple(found[3].split("|")), found[2] == "!="))
        rest = rest[found.end() :]
        if rest.startswith("}"):
            return tuple(matches), rest[1:]
        if not rest.startswith(","):
            raise ValueError(f"{text!r}: the label filter is not closed")
        rest = rest[1:]
