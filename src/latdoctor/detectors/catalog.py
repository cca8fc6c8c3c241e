"""Which signals each detector derives from which available signals."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from latdoctor.detectors.arrival_change import DERIVED as CHANGES
from latdoctor.detectors.arrival_change import SIGNAL as ARRIVALS
from latdoctor.detectors.batch_size_modes import DERIVED as MODES
from latdoctor.detectors.batch_size_modes import SIGNAL as SIZES
from latdoctor.detectors.change_by_counters import DERIVED as EFFECTS_OF_COUNTERS
from latdoctor.detectors.change_by_counters import PAST_COMPUTE
from latdoctor.detectors.change_effect import COMPUTE
from latdoctor.detectors.change_effect import DERIVED as EFFECTS
from latdoctor.detectors.client_excess_latency import DEVIATION, DIFFERENCES, RATIO
from latdoctor.detectors.derived_readings import GIVES as REMAINDERS
from latdoctor.detectors.derived_readings import QUOTIENTS, RESTS, STARTED, UPTIMES, WORDS
from latdoctor.detectors.engine_comparison import DERIVED as ENGINES
from latdoctor.detectors.first_requests import DERIVED as FIRSTS
from latdoctor.detectors.frontend_join import PER_WORKER, SHARED
from latdoctor.detectors.gpu_holders import CAPACITY, HOLDER
from latdoctor.detectors.gpu_holders import LIMIT as GPU_LIMIT
from latdoctor.detectors.gpu_holders import POD as GPU_POD
from latdoctor.detectors.held_requests import DERIVED as HELD
from latdoctor.detectors.latency_estimate import DERIVED as ESTIMATES
from latdoctor.detectors.latency_estimate import INPUT as PROMPT_TOKENS
from latdoctor.detectors.latency_estimate import LENGTH as PROMPT_LENGTH
from latdoctor.detectors.latency_modes import DERIVED as PEAKS
from latdoctor.detectors.latency_modes import SIGNAL as REQUESTS
from latdoctor.detectors.level_onset import ONSET as LEVEL
from latdoctor.detectors.level_onset import SIGNALS as WORSENING
from latdoctor.detectors.limit_change import DERIVED as LIMIT_CHANGES
from latdoctor.detectors.limit_change import HOLDERS, NOTES
from latdoctor.detectors.model_configuration import BACKEND, BUSY, BUSY_ALONE_OF, BUSY_OF, DEVICE
from latdoctor.detectors.noisy_neighbor import NEIGHBOURS, OWN, TAKEN
from latdoctor.detectors.onset import ONSET
from latdoctor.detectors.onset import SIGNALS as SLOWING
from latdoctor.detectors.past_levels import LENGTH, PAST, QUEUE, TOKENS
from latdoctor.detectors.past_levels import MOST as LONGEST
from latdoctor.detectors.past_levels import REQUESTS as COMPLETED
from latdoctor.detectors.periodicity import DERIVED as PULSES
from latdoctor.detectors.pipeline_steps import DERIVED as STEPS
from latdoctor.detectors.pipeline_steps import SOURCES as STEP_SOURCES
from latdoctor.detectors.quantiles import MEAN, QUANTILES
from latdoctor.detectors.queue_bound import DERIVED as BOUNDS
from latdoctor.detectors.queue_bound import LIMIT as QUEUE_LIMIT
from latdoctor.detectors.replica_outliers import RATIOS, VERSIONS
from latdoctor.detectors.revision_means import AGE as READY_AGE
from latdoctor.detectors.revision_means import RATIO as REVISION_RATIO
from latdoctor.detectors.revision_means import REVISION
from latdoctor.detectors.running_ceiling import DERIVED as CEILINGS
from latdoctor.detectors.running_ceiling import RUNNING
from latdoctor.detectors.standstill import DERIVED as STALLS
from latdoctor.detectors.standstill import SOURCES as STALL_SOURCES
from latdoctor.detectors.tail_attribution import DERIVED as TAIL
from latdoctor.detectors.tail_attribution import STAGE as STAGES
from latdoctor.detectors.tail_bounds import LOWER, P99
from latdoctor.detectors.unanswered import ANSWERS, LENGTHS, SHARE
from latdoctor.detectors.unanswered import PAST_MEAN as PAST_LATENCY
from latdoctor.detectors.version_means import RATIO as VERSION_RATIO
from latdoctor.detectors.version_means import TIMES as VERSION_TIMES
from latdoctor.detectors.version_outcomes import DERIVED as VERSION_OUTCOMES
from latdoctor.evidence.catalogue import SignalKind, catalogue

SignalSet = frozenset[str]


def _quantiles(available: SignalSet) -> SignalSet:
    """The quantiles and means of distributions that exist in the catalogue."""
    spread = [name for name in available if catalogue()[name].kind == SignalKind.DISTRIBUTION]
    suffixes = (MEAN, *(suffix for suffix, _, _ in QUANTILES))
    return frozenset(name + suffix for name in spread for suffix in suffixes) & catalogue().keys()


def _tail_bounds(available: SignalSet) -> SignalSet:
    """The P99 of everything with a lower quantile."""
    lower = {name.removesuffix(suffix) for suffix in LOWER for name in available if name.endswith(suffix)}
    return frozenset(name + P99 for name in lower) & catalogue().keys()


def _quotients(available: SignalSet) -> SignalSet:
    return frozenset(one.signal for one in QUOTIENTS if {one.over, one.under} <= available)


def _when(*needed: str, gives: tuple[str, ...]) -> Callable[[SignalSet], SignalSet]:
    """Return a function that yields `gives` if all `needed` signals are available."""
    return lambda available: frozenset(gives) if available.issuperset(needed) else frozenset()


def _holders(available: SignalSet) -> SignalSet:
    shown = GPU_POD in available or {GPU_LIMIT, CAPACITY} <= available
    return frozenset({HOLDER}) if shown else frozenset()


def _past_levels(available: SignalSet) -> SignalSet:
    counted = {LENGTH} if {TOKENS, COMPLETED} <= available else set()
    counted |= {LONGEST} if QUEUE in available else set()
    return frozenset(counted | {past for signal, past in PAST.items() if signal in available})


def _standstill(available: SignalSet) -> SignalSet:
    return frozenset(STALLS) if available & {*STALL_SOURCES} else frozenset()


def _unanswered(available: SignalSet) -> SignalSet:
    if not {ARRIVALS, ANSWERS} <= available:
        return frozenset()
    return frozenset({SHARE, LENGTHS} if PAST_LATENCY in available else {SHARE})


def _clients(available: SignalSet) -> SignalSet:
    differences = [one.signal for one in DIFFERENCES if {one.client, one.server} <= available]
    return frozenset([*differences, DEVIATION, RATIO] if differences else [])


def _siblings(available: SignalSet) -> SignalSet:
    ratios = frozenset(signal for signal, of, _ in RATIOS if of in available)
    return ratios | (frozenset(VERSIONS) if "version.latency.p50" in available else frozenset())


def _model_words(available: SignalSet) -> SignalSet:
    return frozenset(signal for source, signal, _ in WORDS if source in available)


def _versions(available: SignalSet) -> SignalSet:
    return frozenset([VERSION_RATIO]) if available & frozenset(VERSION_TIMES) else frozenset()


def _version_outcomes(available: SignalSet) -> SignalSet:
    return frozenset(VERSION_OUTCOMES) if "version.requests" in available else frozenset()


def _revisions(available: SignalSet) -> SignalSet:
    shown = available >= {REVISION, READY_AGE} and available & frozenset(VERSION_TIMES)
    return frozenset([REVISION_RATIO]) if shown else frozenset()


def _remainders(available: SignalSet) -> SignalSet:
    rests = {rest for whole, waits, rest in RESTS if {whole, waits} <= available}
    known = {"arrival.rate", "retry.share", "batch.padding_factor"} <= available
    return frozenset(rests | (set(REMAINDERS) if known else set()))


def _frontends(available: SignalSet) -> SignalSet:
    shared = frozenset(own for signal, own in SHARED.items() if signal in available)
    return shared if {PER_WORKER, RUNNING} <= available else frozenset()


def _limits(available: SignalSet) -> SignalSet:
    noted = available & frozenset(NOTES) and available & frozenset(HOLDERS)
    return frozenset(LIMIT_CHANGES) if noted else frozenset()


def _onsets(available: SignalSet) -> SignalSet:
    return frozenset([ONSET]) if available & frozenset(SLOWING) else frozenset()


def _levels(available: SignalSet) -> SignalSet:
    return frozenset([LEVEL]) if available & frozenset(WORSENING) else frozenset()


def _starts(available: SignalSet) -> SignalSet:
    return frozenset([STARTED]) if available & frozenset(UPTIMES) else frozenset()


def _engines(available: SignalSet) -> SignalSet:
    return frozenset(ENGINES) if any(name.startswith("engine.") for name in available) else frozenset()


# By the detector's function name, in execution order. A test asserts that the table is complete and exact.
def _configurations(have: SignalSet) -> SignalSet:
    configured = frozenset(name for name in have if name.startswith("config."))
    busy = frozenset({BUSY}) if have >= BUSY_OF or have >= BUSY_ALONE_OF else frozenset()
    return configured | busy | (frozenset({BACKEND}) if DEVICE in have else frozenset())


BY_DETECTOR: Mapping[str, Callable[[SignalSet], SignalSet]] = {
    "gpu_holders": _holders,
    "quantiles": _quantiles,
    "tail_bounds": _tail_bounds,
    "quotients": _quotients,
    "latency_estimates": _when(RUNNING, QUEUE, PROMPT_TOKENS, PROMPT_LENGTH, gives=ESTIMATES),
    "model_configurations": _configurations,
    "derived_remainders": _remainders,
    "batch_bimodality": _when(SIZES, gives=MODES),
    "compare_replicas": _siblings,
    "neighbour_cpu": _when(TAKEN, OWN, "host.cpus", gives=(NEIGHBOURS,)),
    "client_excess_latency": _clients,
    "arrival_changes": _when(ARRIVALS, gives=CHANGES),
    "join_frontends": _frontends,
    "running_ceilings": _when(RUNNING, gives=CEILINGS),
    "held_requests": _when(RUNNING, QUEUE, gives=HELD),
    "version_means": _versions,
    "version_outcomes": _version_outcomes,
    "revision_means": _revisions,
    "past_levels": _past_levels,
    "pipeline_steps": _when(*STEP_SOURCES, gives=STEPS),
    "queue_bounds": _when(QUEUE, QUEUE_LIMIT, gives=BOUNDS),
    "standstill": _standstill,
    "unanswered_requests": _unanswered,
    "first_requests": _when(REQUESTS, STARTED, gives=FIRSTS),
    "latency_modes": _when(REQUESTS, gives=PEAKS),
    "latency_pulses": _when(REQUESTS, gives=PULSES),
    "tail_shares": _when(REQUESTS, STAGES, gives=(TAIL,)),
    "model_properties": _model_words,
    "onsets": _onsets,
    "level_onsets": _levels,
    "process_starts": _starts,
    "change_effects": _when(COMPUTE, gives=EFFECTS),
    "changes_by_counters": _when(COMPUTE, PAST_COMPUTE, gives=EFFECTS_OF_COUNTERS),
    "limit_changes": _limits,
    "compare_engines": _engines,
}


def derivable_signals(sources: SignalSet) -> Mapping[str, SignalSet]:
    """Return the signals that each detector can derive from `sources` and the results of earlier detectors."""
    have = sources
    found: dict[str, SignalSet] = {}
    for name, gives in BY_DETECTOR.items():
        found[name] = gives(have)
        have |= found[name]
    return found
