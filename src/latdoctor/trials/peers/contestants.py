"""The peers as contestants: fitted on the runs that may be looked at, each then ranks causes for any run.

A run that a peer was trained on is read by a mapping that it had no part in, so that no peer remembers it.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import cache

from latdoctor.diagnosis import rule_files
from latdoctor.errors import OperationError
from latdoctor.trials.contest import Contestant, Scorer
from latdoctor.trials.peers.mapping import Fitted, Prior, Training, fit, from_rules, named, refitted
from latdoctor.trials.peers.running import Peer, Scored, Signals, scored
from latdoctor.trials.record import Recorded, signals

# What a peer makes of a run: computed here, or read from where a peer with an environment of its own wrote it.
Source = Callable[[Recorded], Scored]


def contestant(peer: Peer, read: Callable[[Recorded], Signals] | None = None) -> Contestant:
    """`peer` as a contestant; `read` gives the columns of a run (by default those of its recording)."""
    columns = read or _columns
    return from_source(peer.name, lambda recorded: scored(peer, columns(recorded), seed_of(recorded)))


def from_source(name: str, source: Source) -> Contestant:
    """Whoever gives scores of metrics, as a contestant."""

    def fitted_on(training: Sequence[Recorded]) -> Scorer:
        prior = from_rules(rule_files.shipped())
        learnt = {one.truth.run: Training(source(one), one.truth.causes) for one in training}
        reading = fit(name, list(learnt.values()), prior)

        def ranking(recorded: Recorded) -> Sequence[str]:
            own = learnt.get(recorded.truth.run)
            found = own.scored if own else source(recorded)
            if found.failed:
                raise OperationError(found.failed)
            return named(_unbiased(reading, recorded.truth.run, learnt, prior), found)

        return ranking

    return Contestant(name, fitted_on)


def readings(peers: Sequence[Peer], training: Sequence[Recorded]) -> tuple[Fitted, ...]:
    """How each of `peers` is read, for the published table."""
    prior = from_rules(rule_files.shipped())
    return tuple(
        fit(
            peer.name,
            [Training(scored(peer, _columns(one), seed_of(one)), one.truth.causes) for one in training],
            prior,
        )
        for peer in peers
    )


def seed_of(recorded: Recorded) -> int:
    """Which shuffle the columns of a run get: the same for every peer, and another for every run."""
    return zlib.crc32(recorded.truth.run.encode())


def _unbiased(reading: Fitted, run: str, learnt: Mapping[str, Training], prior: Prior) -> Fitted:
    if run not in learnt:
        return reading
    return refitted(reading, [training for name, training in learnt.items() if name != run], prior)


@cache
def _columns(recorded: Recorded) -> Signals:
    """Read once for all peers: it takes longer than any of them."""
    return signals(recorded)
