"""The cost of a ranking, counted and not timed: sixty causes, two hundred findings, sets of three."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latdoctor.conditions.ast import Condition
from latdoctor.conditions.evaluator import FAILS, Facts, Truth, candidates, evaluate
from latdoctor.diagnosis import evaluate as judge_module
from latdoctor.diagnosis import rule_loader
from latdoctor.diagnosis.next_sources import next_looks
from latdoctor.diagnosis.noisy_or import NONE, OTHER_SET, Network, Observation
from latdoctor.diagnosis.rule_schema import Finding, RuleSet
from latdoctor.diagnosis.score_breakdown import account
from latdoctor.evidence.model import Event, Evidence, Origin
from tests.diagnosis.brute_force import World, cause, finding
from tests.diagnosis.test_noisy_or import LN_1000
from tests.evidence.builders import condition, reading
from tests.evidence.builders import facts as facts_of

CAUSES, FINDINGS, SYMPTOMS = 60, 200, 6
SETS = 1 + 1 + CAUSES + CAUSES * (CAUSES - 1) // 2 + 20 * 19 * 18 // 6


def large(seed: int) -> World:
    """A large world in which three faults at once hold, so that sets of three are summed."""
    random = Random(seed)
    pains = [finding(f"s{index}", kind="symptom", usual=0.5) for index in range(SYMPTOMS)]
    own = [finding(f"f{index:03}") for index in range(FINDINGS - SYMPTOMS)]
    causes = []
    for index in range(CAUSES):
        expects = {f"f{index * 3 + part:03}": random.choice([0.8, 0.9, 0.95]) for part in range(3)}
        expects |= {f"s{part}": random.choice([0.5, 0.7, 0.9]) for part in random.sample(range(SYMPTOMS), 2)}
        causes.append(cause(f"c{index:02}", random.choice([1.0, 3.0]), **expects))
    faults = random.sample(causes, 3)
    holding = {name for fault in faults for name in fault.expects} | {"s0"}
    seen = {found.id: LN_1000 if found.id in holding else -LN_1000 * random.random() for found in (*pains, *own)}
    return World(RuleSet((*own, *pains), tuple(causes)), seen)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ids of findings whose factor was worked out, one entry each time."""
    calls: list[str] = []
    plain = Observation.factor

    def counting(self: Observation, expected: float) -> float:
        calls.append(self.finding.id)
        return plain(self, expected)

    monkeypatch.setattr(Observation, "factor", counting)
    return calls


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_factors_are_worked_out_once_per_product_not_once_per_set(counted: list[str], seed: int) -> None:
    world = large(seed)
    of = Network.of(world.rules, world.checks)
    assert len(of.posterior) == SETS
    # ∅ and `other` for each finding, each cause's own three, and for each symptom the products of up to three weights.
    weights = 4  # 1 − 0.5, 0.7, 0.9 and nothing, or the usual share
    assert len(counted) <= 2 * FINDINGS + 3 * CAUSES + SYMPTOMS * 5 * weights**3
    assert len(counted) * 100 < SETS * FINDINGS


def test_an_account_works_out_what_its_two_sets_expect_and_no_set_twice(counted: list[str]) -> None:
    world = large(1)
    of = Network.of(world.rules, world.checks)
    assert of.posterior
    counted.clear()
    account("c00", of, world.checks)
    own = 3 * 3 + SYMPTOMS  # findings that some member of a set expects
    assert len(counted) <= 2 * own
    counted.clear()
    account("c00", of, world.checks)
    assert counted == []


def test_what_each_observation_adds_to_a_set_is_its_evidence() -> None:
    world = large(1)
    of = Network.of(world.rules, world.checks)
    for chosen in (*of.best_first[:: SETS // 50], NONE, OTHER_SET):
        assert list(of.evidences(chosen)) == [of.evidence(one, chosen) for one in of.observations]


@settings(max_examples=10)
@given(st.integers(0, 1000))
def test_the_shortcut_gives_the_plain_scores_in_a_large_world(seed: int) -> None:
    world = large(seed)
    of = Network.of(world.rules, world.checks)
    for chosen in Random(seed).sample(list(of.scores), 50):
        plain = of.prior(chosen) + of.exclusion(chosen) + sum(of.evidence(o, chosen) for o in of.observations)
        assert of.scores[chosen] == pytest.approx(plain, abs=1e-9)


class Everything(judge_module.Provider):
    """A source that settles whatever is open."""

    def may_settle(self, finding: Finding) -> bool:
        return True


@pytest.mark.parametrize("asked", [True, False], ids=["a source settles all", "no source settles any"])
def test_the_next_look_looks_only_at_sets_that_a_settled_finding_concerns(
    monkeypatch: pytest.MonkeyPatch, asked: bool
) -> None:
    world = large(1)
    blind = World(world.rules, {})
    of = Network.of(blind.rules, blind.checks)
    calls: list[object] = []
    plain = Network.expected

    def counting(self: Network, what: object, chosen: object) -> float:
        calls.append(chosen)
        return plain(self, what, chosen)  # type: ignore[arg-type]  # passed through

    assert of.sets_with
    monkeypatch.setattr(Network, "expected", counting)
    providers = [Everything("all", "--all", "1 s", frozenset())] if asked else []
    assert len(next_looks(blind.rules, of, blind.checks, providers)) == len(providers)
    concerned = CAUSES + 2  # a cause alone, with each other cause; `other` and none
    every = 1 + 1 + CAUSES + CAUSES * (CAUSES - 1) // 2
    assert len(calls) <= ((FINDINGS - SYMPTOMS) * concerned + SYMPTOMS * every if asked else 0)
    assert bool(calls) is asked


class Walked(tuple[Event, ...]):
    """Events that count how often someone walks over all of them."""

    times = 0

    def __iter__(self) -> Iterator[Event]:
        Walked.times += 1
        return super().__iter__()


def test_all_events_are_walked_once_however_many_findings_count_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Walked, "times", 0)
    events = Walked(Event("log.cuda_error", "node/a", Origin("app.log", f"line {n}")) for n in range(1000))
    facts = Facts(Evidence(events=events, looked=(("log.xid", "node/a"),)), {}, {}, {})
    for code in range(100):
        term = condition(f"count(log.xid, code in [{code}]) > 0")
        assert candidates(term, facts) == (("node/a",), ())
        assert evaluate(term, "node/a", facts).status == FAILS
    assert Walked.times == 1


def test_judging_grows_with_the_replicas_and_no_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    plain = judge_module.evaluate

    def counting(what: Condition, subject: str, facts: Facts) -> Truth:
        calls.append(subject)
        return plain(what, subject, facts)

    monkeypatch.setattr(judge_module, "evaluate", counting)

    def judgements(replicas: int) -> int:
        calls.clear()
        read = ("latency.p99", "queue.depth", "batch.size.mean", "alloc.device_calls")
        readings = [reading(name, 1.0, f"replica/{number}") for name in read for number in range(replicas)]
        judge_module.judge(rule_loader.shipped(), facts_of(*readings), ())
        return len(calls)

    one, two, sixteen = judgements(1), judgements(2), judgements(16)
    assert two > one
    assert sixteen == one + 15 * (two - one)
