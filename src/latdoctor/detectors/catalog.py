"""What the detectors give, out of what is given to them: the other half of where a signal comes from."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from latdoctor.detectors.arrival_change import DERIVED as CHANGES
from latdoctor.detectors.arrival_change import SIGNAL as ARRIVALS
from latdoctor.detectors.bimodality import DERIVED as MODES
from latdoctor.detectors.bimodality import SIGNAL as SIZES
from latdoctor.detectors.client_excess_latency import DEVIATION, DIFFERENCES, RATIO
from latdoctor.detectors.derived_ratios import GIVES as REMAINDERS
from latdoctor.detectors.derived_ratios import QUOTIENTS, STARTED, UPTIMES, WORDS
from latdoctor.detectors.latency_modes import DERIVED as PEAKS
from latdoctor.detectors.latency_modes import SIGNAL as REQUESTS
from latdoctor.detectors.noisy_neighbor import NEIGHBOURS, OWN, TAKEN
from latdoctor.detectors.onset import ONSET
from latdoctor.detectors.onset import SIGNALS as SLOWING
from latdoctor.detectors.periodicity import DERIVED as PULSES
from latdoctor.detectors.quantiles import MEAN, QUANTILES
from latdoctor.detectors.replica_outliers import RATIOS, VERSIONS
from latdoctor.detectors.tail_attribution import DERIVED as TAIL
from latdoctor.detectors.tail_attribution import STAGE as STAGES
from latdoctor.detectors.tensorrt_engines import DERIVED as ENGINES
from latdoctor.evidence.catalogue import catalogue

SignalSet = frozenset[str]


def _quantiles(given: SignalSet) -> SignalSet:
    """The quantiles and means of distributions, where the catalogue has them."""
    spread = [name for name in given if catalogue()[name].kind == "distribution"]
    suffixes = (MEAN, *(suffix for suffix, _, _ in QUANTILES))
    return frozenset(name + suffix for name in spread for suffix in suffixes) & catalogue().keys()


def _quotients(given: SignalSet) -> SignalSet:
    return frozenset(one.signal for one in QUOTIENTS if {one.over, one.under} <= given)


def _when(*needed: str, gives: tuple[str, ...]) -> Callable[[SignalSet], SignalSet]:
    """`gives`, where all that is `needed` is there."""
    return lambda given: frozenset(gives) if given.issuperset(needed) else frozenset()


def _clients(given: SignalSet) -> SignalSet:
    told = [one.signal for one in DIFFERENCES if {one.client, one.server} <= given]
    return frozenset([*told, DEVIATION, RATIO] if told else [])


def _siblings(given: SignalSet) -> SignalSet:
    ratios = frozenset(signal for signal, of, _ in RATIOS if of in given)
    return ratios | (frozenset(VERSIONS) if "version.latency.p50" in given else frozenset())


def _model_words(given: SignalSet) -> SignalSet:
    return frozenset(signal for source, signal, _ in WORDS if source in given)


def _onsets(given: SignalSet) -> SignalSet:
    return frozenset([ONSET]) if given & frozenset(SLOWING) else frozenset()


def _starts(given: SignalSet) -> SignalSet:
    return frozenset([STARTED]) if given & frozenset(UPTIMES) else frozenset()


def _engines(given: SignalSet) -> SignalSet:
    return frozenset(ENGINES) if any(name.startswith("engine.") for name in given) else frozenset()


# By the detector's name, in the order in which they run. A test holds that none is missing and none gives more.
BY_DETECTOR: Mapping[str, Callable[[SignalSet], SignalSet]] = {
    "quantiles": _quantiles,
    "quotients": _quotients,
    "derived_remainders": _when("arrival.rate", "retry.share", "batch.padding_factor", gives=REMAINDERS),
    "batch_bimodality": _when(SIZES, gives=MODES),
    "compare_replicas": _siblings,
    "neighbour_cpu": _when(TAKEN, OWN, "host.cpus", gives=(NEIGHBOURS,)),
    "client_excess_latency": _clients,
    "arrival_changes": _when(ARRIVALS, gives=CHANGES),
    "latency_modes": _when(REQUESTS, gives=PEAKS),
    "latency_pulses": _when(REQUESTS, gives=PULSES),
    "tail_shares": _when(REQUESTS, STAGES, gives=(TAIL,)),
    "model_properties": _model_words,
    "onsets": _onsets,
    "process_starts": _starts,
    "compare_engines": _engines,
}


def derivable_signals(sources: SignalSet) -> Mapping[str, SignalSet]:
    """What each detector can give out of what the sources and the detectors before it give."""
    have = sources
    found: dict[str, SignalSet] = {}
    for name, gives in BY_DETECTOR.items():
        found[name] = gives(have)
        have |= found[name]
    return found
