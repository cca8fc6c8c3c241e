"""The whole bench over a folder of recordings: every look diagnosed, the answers scored, the peers beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import msgspec

from latdoctor.diagnosis.rule_schema import RuleSet
from latdoctor.errors import UNDECODABLE, BundleError
from latdoctor.evaluation.baselines import PEERS
from latdoctor.evaluation.baselines.adapter import GIVEN, contestant
from latdoctor.evaluation.contest import Contestant, Given, as_peer, comparable, contest
from latdoctor.evaluation.diagnose_runs import Answered, Judged, answers
from latdoctor.evaluation.ground_truth import Split
from latdoctor.evaluation.scoring import OURSELVES, Peer, Scores, score
from latdoctor.evaluation.store import Recorded
from latdoctor.evaluation.variants import PLAIN

ENTRANTS: tuple[Contestant, ...] = tuple(contestant(peer, metrics) for metrics in GIVEN for peer in PEERS)


AT_ONCE = 4  # runs handed to a process together


@dataclass(frozen=True, slots=True)
class Bench:
    """What is judged: the runs, by which rules, beside whom."""

    recorded: tuple[Recorded, ...]
    rules: RuleSet
    split: Split
    contestants: tuple[Contestant, ...] = ()


@dataclass(frozen=True, slots=True)
class Chosen:
    """The options that chose the runs, how many they are, and what became of those that are not recorded."""

    options: str
    runs: int
    spoiled_tries: int
    given_up: int


def judged(bench: Bench, say: Callable[[str], None], processes: int = 1) -> tuple[Judged, ...]:
    """Every look of every run, diagnosed. Raises BundleError for a damaged recording."""
    found: list[Judged] = []
    for number, one in enumerate(_each(bench, processes), 1):
        found += one
        if number % 25 == 0:
            say(f"{number} of {len(bench.recorded)} runs diagnosed")
    return tuple(found)


def _each(bench: Bench, processes: int) -> Iterator[tuple[Judged, ...]]:
    if processes <= 1 or len(bench.recorded) <= AT_ONCE:
        yield from (answers(one, bench.rules) for one in bench.recorded)
        return
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        yield from pool.map(answers, bench.recorded, [bench.rules] * len(bench.recorded), chunksize=AT_ONCE)


def scores(bench: Bench, found: Sequence[Judged], chosen: Chosen, say: Callable[[str], None]) -> Scores:
    """The scores of what was found, with the peers'."""
    truths = {one.truth.run: one.truth for one in bench.recorded}
    given: list[Answered] = [one.answered for one in found]
    made = score(truths, given, bench.split)
    peers = (_ourselves(bench, given), *contest(entered(bench), bench.recorded, bench.split, say))
    runs = msgspec.structs.replace(
        made.runs,
        spoiled_tries=chosen.spoiled_tries,
        given_up=chosen.given_up,
        planned=chosen.runs,
        chosen=chosen.options,
    )
    return msgspec.structs.replace(made, runs=runs, peers=peers)


def entered(bench: Bench) -> tuple[Contestant, ...]:
    """The contestants; none where only one cause occurs, as whoever knows no other is always right."""
    causes = {cause for one in comparable(bench.recorded) for cause in one.truth.causes}
    return bench.contestants if len(causes) > 1 else ()


def _ourselves(bench: Bench, answered: Sequence[Answered]) -> Peer:
    """The diagnosis as one more contestant, on the runs that the others are judged on."""
    plain = {one.run: one for one in answered if one.view == PLAIN}
    found = ((one.truth, plain[one.truth.run]) for one in comparable(bench.recorded) if one.truth.run in plain)
    given = [Given(truth, [cause.id for cause in own.ranked], own.seconds) for truth, own in found]
    return as_peer(OURSELVES, "bundle", given, bench.split)


def read(path: Path) -> Scores:
    """Scores that were written as JSON. Raises BundleError."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Scores)
    except OSError as error:
        raise BundleError(f"the scores cannot be read: {error.strerror}", where=str(path)) from error
    except UNDECODABLE as error:
        raise BundleError(f"these are no scores of this version: {error}", where=str(path)) from error
