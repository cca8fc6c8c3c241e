"""The peers as contestants: fitted on the runs that may be looked at, each then ranks causes for any run.

Each enters twice: with the series as they were scraped, which is what a user of such a method has, and with the signals
that latdoctor makes of them. A run that a peer was trained on is read by a mapping that it had no part in, so that no
peer remembers it.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import msgspec
from msgspec import Struct

from latdoctor.diagnosis import rule_loader
from latdoctor.errors import UNDECODABLE, BundleError, OperationError
from latdoctor.evaluation.baselines.methods import Peer, Scored, Signals, scored
from latdoctor.evaluation.baselines.metric_to_cause import Fitted, Prior, Training, fit, from_rules, named, refitted
from latdoctor.evaluation.baselines.scraped_inputs import by_metric, scraped
from latdoctor.evaluation.contest import Contestant, Scorer
from latdoctor.evaluation.store import Recorded, signals

# What a peer makes of a run: computed here, or read from where a peer with an environment of its own wrote it.
Source = Callable[[Recorded], Scored]


@dataclass(frozen=True, slots=True)
class Metrics:
    """What peers are given: the columns of a run, and what the rules say of them."""

    name: str
    read: Callable[[Recorded], Signals]
    prior: Callable[[], Prior]


def _of_rules() -> Prior:
    return from_rules(rule_loader.shipped())


# Columns are read once for all peers: that takes longer than any of them.
SCRAPED = Metrics("scraped", cache(scraped), lambda: by_metric(_of_rules()))
SIGNALS = Metrics("signals", cache(signals), _of_rules)
GIVEN = (SCRAPED, SIGNALS)


def contestant(peer: Peer, metrics: Metrics) -> Contestant:
    """`peer` with `metrics` as a contestant."""
    return from_source(peer.name, _source(peer, metrics), metrics)


def from_source(name: str, source: Source, metrics: Metrics = SIGNALS) -> Contestant:
    """Whoever gives scores of metrics, as a contestant."""

    def fitted_on(training: Sequence[Recorded]) -> Scorer:
        prior = metrics.prior()
        learnt = {one.truth.run: Training(source(one), one.truth.causes) for one in training}
        reading = fit(name, list(learnt.values()), prior)

        def ranking(recorded: Recorded) -> Sequence[str]:
            own = learnt.get(recorded.truth.run)
            found = own.scored if own else source(recorded)
            if found.failed:
                raise OperationError(found.failed)
            return named(_unbiased(reading, recorded.truth.run, learnt, prior), found)

        return ranking

    return Contestant(name, metrics.name, fitted_on)


def readings(peers: Sequence[Peer], metrics: Metrics, training: Sequence[Recorded]) -> Iterator[Fitted]:
    """How each of `peers` is read with `metrics`, for the published table."""
    prior = metrics.prior()
    for peer in peers:
        source = _source(peer, metrics)
        yield fit(peer.name, [Training(source(one), one.truth.causes) for one in training], prior)


def _source(peer: Peer, metrics: Metrics) -> Source:
    return lambda recorded: scored(peer, metrics.read(recorded), seed_of(recorded))


def seed_of(recorded: Recorded) -> int:
    """Which shuffle the columns of a run get: the same for every peer, and another for every run."""
    return zlib.crc32(recorded.truth.run.encode())


def _unbiased(reading: Fitted, run: str, learnt: Mapping[str, Training], prior: Prior) -> Fitted:
    if run not in learnt:
        return reading
    return refitted(reading, [training for name, training in learnt.items() if name != run], prior)


FOLDER = "peers"
MAX_BYTES = 256 << 20


class Kept(Struct, frozen=True, forbid_unknown_fields=True):
    """What one peer made of each run."""

    peer: str
    runs: dict[str, Scored]


def keep(folder: Path, kept: Kept) -> Path:
    """Writes it beside the recordings in `folder`. Raises BundleError."""
    path = folder / FOLDER / f"{kept.peer}.json"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        made = path.with_suffix(".json.new")
        made.write_bytes(msgspec.json.encode(kept, order="sorted"))
        made.replace(path)
    except OSError as error:
        raise BundleError(f"the scores cannot be written: {error.strerror}", where=str(path)) from error
    return path


def contestants(folder: Path) -> tuple[Contestant, ...]:
    """Who has kept scores beside the recordings in `folder`, in the order of names. Raises BundleError."""
    return tuple(_contestant(path) for path in sorted((folder / FOLDER).glob("*.json")))


def _contestant(path: Path) -> Contestant:
    kept = _read(path)

    def source(recorded: Recorded) -> Scored:
        run = recorded.truth.run
        return kept.runs.get(run) or Scored(kept.peer, failed=f"{kept.peer} has not scored {run}")

    return from_source(kept.peer, source)


def _read(path: Path) -> Kept:
    again = "run that peer again, or take the file away"
    try:
        if path.stat().st_size > MAX_BYTES:
            raise BundleError(f"larger than {MAX_BYTES >> 20} MiB", where=str(path), next_step=again)
        return msgspec.json.decode(path.read_bytes(), type=Kept)
    except OSError as error:
        raise BundleError(f"cannot be read: {error.strerror}", where=str(path)) from error
    except UNDECODABLE as error:
        raise BundleError(f"these are no scores of a peer: {error}", where=str(path), next_step=again) from error
