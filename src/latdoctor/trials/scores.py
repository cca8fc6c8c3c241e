"""What a bench says of a diagnosis, as values; the JSON document is this, field by field."""

from __future__ import annotations

from msgspec import Struct

from latdoctor.trials.intervals import Estimate, Share
from latdoctor.trials.reliability import Bin

SCHEMA_VERSION = "3"
OURSELVES = "latdoctor"  # among the methods
PAIR_RUNS = 20  # of a cause, for its hard pairs to be told
PAIR_APART = 0.9  # the share of them in which it must rank before its neighbour


class Accuracy(Struct, frozen=True):
    """Of runs with something wrong: the right cause first, among the first three, and on average over 1 to 5."""

    ac1: Share
    ac3: Share
    avg5: Estimate


class Row(Struct, frozen=True):
    """One family, withheld source or wrong time: how right, how sure, and how often nothing was named."""

    name: str
    accuracy: Accuracy
    abstained: Share
    named_right: Share
    sureness: float | None  # mean probability of the top cause


class Pair(Struct, frozen=True):
    """Of the runs of `cause`, those in which it ranks before `neighbour`."""

    cause: str
    neighbour: str
    told_apart: Share

    @property
    def enough(self) -> bool:
        """Whether there are as many runs as a share of nine tenths is told by."""
        return self.told_apart.of >= PAIR_RUNS

    @property
    def apart(self) -> bool:
        return self.told_apart.value is not None and self.told_apart.value >= PAIR_APART


class Unknown(Struct, frozen=True):
    """A cause taken out of the catalogue: of its runs, those in which something is wrongly named.

    What is hard to tell from it does not count as wrong, nor does what is really wrong besides.
    """

    cause: str
    wrongly_named: Share


class FalseAlarms(Struct, frozen=True):
    """Of runs in which nothing was wrong, those in which a cause was named. `bound`: the true rate is at most that
    (one-sided 95 %). `runs` are those in which it happened.
    """

    share: Share
    bound: float | None
    runs: tuple[str, ...]


class Well(Struct, frozen=True):
    """The false alarms of one sort of runs in which nothing was wrong, such as busy ones."""

    name: str
    false_alarms: FalseAlarms


class Peer(Struct, frozen=True):
    """Another method on the same bundles. `crashed` runs count as failures; `seconds` is the median of a run.

    `metrics`: what it reads of a bundle: the `scraped` series, the `signals` made of them, or the whole `bundle`.
    `never_looked_at`: AC@1 on families of which it learnt nothing.
    """

    name: str
    metrics: str
    ac1: Share
    never_looked_at: Share
    ac3: Share
    avg5: Estimate
    both_of_two: Share
    crashed: int
    seconds: float | None


class Miss(Struct, frozen=True):
    """A run in which the right cause was not first."""

    run: str
    causes: tuple[str, ...]
    first: str
    named: tuple[str, ...]


class Counted(Struct, frozen=True):
    """How many runs there are: played with something wrong, played with nothing wrong, made; how many were spoiled
    tries, and cells given up after three; and how many were planned by the options `chosen` (None: nobody planned).
    """

    wrong: int
    well: int
    made: int
    spoiled_tries: int = 0
    given_up: int = 0
    planned: int | None = None
    chosen: str = ""

    @property
    def missing(self) -> int:
        """How many were planned, and are not among these."""
        return 0 if self.planned is None else self.planned - self.wrong - self.well - self.made


class Scores(Struct, frozen=True):
    """Everything. Shares carry Wilson's 95 % interval, means a bootstrapped one.

    What is pooled over played and made runs stands beside what the played ones give alone.
    """

    schema_version: str
    tool_version: str
    runs: Counted
    ac1: Share
    ac3: Share
    avg5: Estimate
    both_of_two: Share
    false_alarms: FalseAlarms
    abstained: Share
    named_right: Share
    brier: Estimate
    ece: Estimate
    bins: tuple[Bin, ...]
    grounded: Estimate
    seconds: Estimate
    slowest: float | None
    played: Accuracy
    played_false_alarms: FalseAlarms
    well: tuple[Well, ...]
    looked_at: Accuracy
    never_looked_at: Accuracy
    families: tuple[Row, ...]
    kinds: tuple[Row, ...]
    severities: tuple[Row, ...]
    hard_pairs: tuple[Pair, ...]
    withheld: tuple[Row, ...]
    wrong_time: tuple[Row, ...]
    left_out: tuple[Unknown, ...]
    unknown_named: Share
    misses: tuple[Miss, ...]
    peers: tuple[Peer, ...] = ()
