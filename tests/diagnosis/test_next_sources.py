"""The recommended next source separates the rivals, and a source that was read is not proposed again."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given

from latdoctor.diagnosis import next_sources, rule_loader
from latdoctor.diagnosis.evaluate import Provider
from latdoctor.diagnosis.next_sources import next_looks
from latdoctor.diagnosis.result import Diagnosis
from latdoctor.diagnosis.rule_schema import RuleSet
from latdoctor.evidence.model import Coverage
from tests.diagnosis.brute_force import World
from tests.diagnosis.small_rules import cause, diagnosed, evidence, written
from tests.diagnosis.test_noisy_or import network, worlds

FINDINGS = """
- {id: shared, message: seen, when: requests.running > 10, tier: application, leak: 2%}
- {id: separates, message: only one expects it, when: input.length.mean > 10, tier: application, leak: 2%}
- {id: alike, message: both expect it, when: batch.size.mean > 10, tier: application, leak: 2%}
- {id: aside, message: neither expects it, when: trace.kernels > 10, tier: application, leak: 2%}
"""


def source(name: str, *signals: str) -> Provider:
    return Provider(name, f"--{name} FILE", "1 s", frozenset(signals))


LENGTHS = source("access-log", "input.length.mean")
SIZES = source("metrics", "batch.size.mean", "requests.running")
TRACE = source("trace", "trace.kernels")


@pytest.fixture
def rules(tmp_path: Path) -> RuleSet:
    causes = {
        "app.one": cause("app.one", expects="{shared: 90%, separates: 95%, alike: 90%}"),
        "app.two": cause("app.two", expects="{shared: 90%, alike: 90%}"),
        "app.far": cause("app.far", expects="{aside: 90%}"),
    }
    return rule_loader.read([written(tmp_path, FINDINGS, causes)])


def looks(rules: RuleSet, *providers: Provider, read: tuple[Coverage, ...] = (), **states: bool) -> Diagnosis:
    return diagnosed(rules, evidence({"shared": True, **states}), providers=providers, coverage=read)


def test_the_finding_that_separates_two_rivals_has_the_most_bits(rules: RuleSet) -> None:
    found = looks(rules, SIZES, TRACE, LENGTHS).next_looks
    assert found[0].source == "access-log"
    assert found[0].checks == ("separates",)
    bits = {look.source: look.bits for look in found}
    assert bits["access-log"] > 0.5
    assert bits["access-log"] > 1.5 * max(bits.get("metrics", 0), bits.get("trace", 0))


@pytest.mark.parametrize(
    ("status", "proposed"), [("read", False), ("partly", False), ("failed", True), ("not-asked", True)]
)
def test_a_source_that_was_read_is_not_proposed(rules: RuleSet, status: str, proposed: bool) -> None:
    found = looks(rules, LENGTHS, read=(Coverage("access-log", "access log", status, 1),)).next_looks
    assert [look.source for look in found] == (["access-log"] if proposed else [])


def test_what_is_known_is_not_looked_for(rules: RuleSet) -> None:
    assert looks(rules, LENGTHS, lonely=True).next_looks[0].source == "access-log"
    known = diagnosed(rules, evidence({"shared": True, "long": True}), providers=(LENGTHS,))
    assert known.next_looks == ()


def test_a_source_that_shows_nothing_in_doubt_is_not_proposed(rules: RuleSet) -> None:
    assert looks(rules, source("host", "host.cpus")).next_looks == ()


def test_several_findings_of_one_source_add_up_and_at_most_three_sources_are_listed(rules: RuleSet) -> None:
    whole = source("whole", "input.length.mean", "batch.size.mean", "trace.kernels")
    parts = [LENGTHS, source("sizes", "batch.size.mean"), TRACE]
    found = looks(rules, whole, *parts).next_looks
    assert found[0].source == "whole"
    assert found[0].checks[0] == "separates"
    assert len(found) <= next_sources.MAX_LOOKS
    each = sum(look.bits for part in parts for look in looks(rules, part).next_looks)
    assert found[0].bits == pytest.approx(each, abs=0.02)


def entropy(p: float) -> float:
    return -sum(x * math.log2(x) for x in (p, 1 - p) if x > 0)


@given(worlds())
def test_the_bits_are_the_mutual_information_set_by_set(world: World) -> None:
    of = network(world)
    for finding in world.rules.findings:
        expected = {chosen: of.expected(finding, chosen) for chosen in of.posterior}
        mixed = sum(share * expected[chosen] for chosen, share in of.posterior.items())
        plain = entropy(mixed) - sum(share * entropy(expected[chosen]) for chosen, share in of.posterior.items())
        found = next_sources._information(finding, of, next_sources._telling(of))
        assert found == pytest.approx(max(0.0, plain), abs=1e-9)
        assert 0 <= found <= 1


@given(worlds())
def test_only_findings_not_evaluated_count(world: World) -> None:
    checks = world.checks
    blind = Provider("all", "--all", "1 s", frozenset())
    assert next_looks(world.rules, network(world), checks, [blind]) == ()


GROWN = "- {id: grown, message: many more, when: batch.size.mean > 3 x baseline, tier: application, leak: 2%}\n"


@pytest.mark.parametrize(
    ("lonely", "baseline", "proposed"),
    [(True, {}, ["grown"]), (None, {}, []), (True, {("batch.size.mean", "model/a"): 1.0}, [])],
)
def test_a_baseline_is_proposed_where_what_it_is_compared_with_was_seen(
    tmp_path: Path, lonely: bool | None, baseline: dict[tuple[str, str], float], proposed: list[str]
) -> None:
    causes = {
        "app.one": cause("app.one", expects="{shared: 90%, grown: 95%}"),
        "app.two": cause("app.two", expects="{shared: 90%, alike: 90%}"),
    }
    rules = rule_loader.read([written(tmp_path, FINDINGS + GROWN, causes)])
    seen = evidence({"shared": True, "lonely": lonely})
    found = diagnosed(rules, seen, baseline=baseline).next_looks
    assert [name for look in found if look.source == "baseline" for name in look.checks] == proposed
