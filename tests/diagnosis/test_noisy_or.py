"""The ranking against a brute-force oracle, and the laws that it must obey."""

from __future__ import annotations

import dataclasses
import math
from random import Random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from latdoctor.diagnosis.noisy_or import NONE, OTHER_SET, TEMPERATURE, Network
from latdoctor.diagnosis.rule_schema import Cause, Finding, RuleSet
from tests.diagnosis import brute_force as oracle
from tests.diagnosis.brute_force import World, cause, finding

LN_1000 = math.log(1000)
LEAKS = st.sampled_from([0.0005, 0.001, 0.01, 0.02, 0.05, 0.1])
WEIGHTS = st.sampled_from([0.5, 0.55, 0.7, 0.8, 0.9, 0.95, 0.99])
STRENGTHS = st.one_of(st.sampled_from([-LN_1000, -1.0, 0.0, 0.5, LN_1000]), st.floats(-LN_1000, LN_1000))


@st.composite
def findings(draw: st.DrawFn) -> tuple[Finding, ...]:
    made = []
    for index in range(draw(st.integers(1, 8))):
        kind = draw(st.sampled_from(["specific", "specific", "specific", "symptom", "error"]))
        usual = 0.0 if kind == "specific" else draw(st.sampled_from([0.0, 0.1, 0.5, 0.6]))
        made.append(finding(f"f{index}", draw(LEAKS), kind, usual, draw(st.sampled_from(["", "", "g", "h"]))))
    return (*made, finding("anchor"))


@st.composite
def worlds(draw: st.DrawFn) -> World:
    of = draw(findings())
    names = [found.id for found in of]
    causes = []
    for index in range(draw(st.integers(1, 6))):
        expects = draw(st.dictionaries(st.sampled_from(names), WEIGHTS, max_size=4)) or {"anchor": draw(WEIGHTS)}
        if not any(found.specific and found.id in expects for found in of):
            expects["anchor"] = draw(WEIGHTS)
        out = tuple(draw(st.lists(st.sampled_from(names), max_size=2, unique=True)))
        causes.append(cause(f"c{index}", draw(st.sampled_from([0.1, 1.0, 3.0, 10.0, 100.0])), out, **expects))
    seen = draw(st.dictionaries(st.sampled_from(names), STRENGTHS))
    gone = draw(st.sets(st.sampled_from(names), max_size=2)) - set(seen)
    return World(RuleSet(of, tuple(causes)), seen, frozenset(gone))


def network(world: World, temperature: float = TEMPERATURE) -> Network:
    return Network.of(world.rules, world.checks, temperature)


def by_set(of: Network) -> dict[frozenset[str], float]:
    return {frozenset(chosen): share for chosen, share in of.posterior.items()}


@given(worlds(), st.sampled_from([1.0, TEMPERATURE, 1.5, 3.0]))
def test_the_posterior_is_the_oracles(world: World, temperature: float) -> None:
    expected = oracle.posterior(world, temperature)
    assume(expected is not None)
    assert expected is not None
    found = by_set(network(world, temperature))
    assert found.keys() == expected.keys()
    for chosen, share in expected.items():
        assert found[chosen] == pytest.approx(share, abs=1e-9)


@given(worlds())
def test_probabilities_are_sums_of_the_posterior(world: World) -> None:
    of = network(world)
    shares = by_set(of)
    assert sum(shares.values()) == pytest.approx(1, abs=1e-9)
    for name in of.causes:
        assert of.probability(name) == pytest.approx(sum(p for s, p in shares.items() if name in s), abs=1e-9)
    for pair in zip(of.causes, list(of.causes)[1:], strict=False):
        assert of.probability(*pair) == pytest.approx(sum(p for s, p in shares.items() if s & set(pair)), abs=1e-9)
    assert of.no_known_cause == pytest.approx(shares[frozenset()] + shares[oracle.ELSE], abs=1e-9)
    assert of.probability() == 0


@given(worlds())
def test_with_nothing_known_one_half_is_none_and_one_tenth_is_other(world: World) -> None:
    of = network(World(world.rules, {}, world.not_applicable))
    assume(of.causes)
    assume(sum(cause.prior for cause in of.causes.values()) <= 150)  # beyond it the odds are no longer scaled down
    assert of.posterior[NONE] == pytest.approx(0.5, abs=1e-9)
    assert of.posterior[OTHER_SET] == pytest.approx(0.1, abs=1e-9)


def of_many(causes: int) -> Network:
    rules = RuleSet((finding("f"),), tuple(cause(f"c{index:02}", 1.0 + index % 7, f=0.9) for index in range(causes)))
    return network(World(rules, {}))


def test_a_cause_that_is_added_to_a_large_catalogue_makes_no_other_less_likely() -> None:
    few, many = of_many(60), of_many(90)
    assert all(many.ln_priors[name] == pytest.approx(few.ln_priors[name]) for name in few.causes)


@pytest.mark.parametrize("causes", [1, 2, 40])
def test_the_prior_of_nothing_does_not_depend_on_how_many_causes_the_rules_know(causes: int) -> None:
    of = of_many(causes)
    assert of.posterior[NONE] == pytest.approx(0.5, abs=1e-12)
    assert of.probability(*of.causes) == pytest.approx(0.4, abs=1e-12)


def test_without_any_cause_nothing_and_other_share_the_whole() -> None:
    of = network(World(RuleSet((finding("f"),), ()), {"f": LN_1000}))
    assert sum(of.posterior.values()) == pytest.approx(1)
    assert set(of.posterior) == {NONE, OTHER_SET}


@given(worlds(), st.randoms(use_true_random=False))
def test_the_order_of_rules_and_checks_means_nothing(world: World, random: Random) -> None:
    rules = world.rules
    shuffled = RuleSet(
        tuple(random.sample(rules.findings, len(rules.findings))),
        tuple(
            dataclasses.replace(c, expects=dict(random.sample(list(c.expects.items()), len(c.expects))))
            for c in random.sample(rules.causes, len(rules.causes))
        ),
    )
    turned = World(shuffled, world.seen, world.not_applicable)
    checks = tuple(random.sample(turned.checks, len(turned.checks)))
    assert Network.of(shuffled, checks).posterior == network(world).posterior, "to the last bit"


@given(worlds(), LEAKS, WEIGHTS)
def test_a_finding_that_says_nothing_changes_nothing(world: World, leak: float, weight: float) -> None:
    assume(not world.not_applicable)  # a mute finding that does apply would bring a removed cause back
    more = RuleSet(
        (*world.rules.findings, finding("mute", leak)),
        tuple(dataclasses.replace(c, expects={**c.expects, "mute": weight}) for c in world.rules.causes),
    )
    for seen in ({**world.seen, "mute": 0.0}, world.seen):
        assert by_set(network(World(more, seen, world.not_applicable))) == pytest.approx(
            by_set(network(world)), abs=1e-12
        )


@given(worlds(), st.integers(1, 3), st.data())
def test_exact_duplicates_within_a_group_change_nothing(world: World, copies: int, data: st.DataObject) -> None:
    twin = data.draw(st.sampled_from(world.rules.findings))
    alone = {f.id: dataclasses.replace(f, group="") for f in world.rules.findings if f.id != twin.id}
    once = RuleSet((*alone.values(), dataclasses.replace(twin, group="twins")), world.rules.causes)
    names = [f"{twin.id}-again-{index}" for index in range(copies)]

    def expecting(one: Cause) -> Cause:
        more = {name: one.expects[twin.id] for name in names if twin.id in one.expects}
        return dataclasses.replace(one, expects={**one.expects, **more})

    often = RuleSet(
        (*once.findings, *(dataclasses.replace(twin, id=name, group="twins") for name in names)),
        tuple(expecting(one) for one in once.causes),
    )
    seen = {**world.seen, **{name: world.seen[twin.id] for name in names if twin.id in world.seen}}
    gone = world.not_applicable | {name for name in names if twin.id in world.not_applicable}
    assert by_set(network(World(often, seen, gone))) == pytest.approx(
        by_set(network(World(once, world.seen, world.not_applicable))), abs=1e-9
    )


def test_in_a_group_the_member_that_speaks_loudest_weighs_most() -> None:
    rules = RuleSet((finding("loud", group="g"), finding("faint", group="g")), (cause("c", loud=0.9, faint=0.9),))
    alone = network(World(rules, {"loud": LN_1000})).probability("c")
    both = network(World(rules, {"loud": LN_1000, "faint": 0.01})).probability("c")
    average = network(World(rules, {"loud": LN_1000 / 2, "faint": LN_1000 / 2})).probability("c")
    assert average < both <= alone
    assert both == pytest.approx(alone, abs=0.01), "an uninformative member does not dilute"


@given(worlds(), st.floats(0.01, LN_1000), st.data())
def test_support_never_lowers_a_cause_against_nothing(world: World, strength: float, data: st.DataObject) -> None:
    """One cause against none, ungrouped: what a cause expects and what then holds speaks for it."""
    rules = RuleSet(tuple(dataclasses.replace(f, group="") for f in world.rules.findings), world.rules.causes)
    one = data.draw(st.sampled_from(rules.causes))
    name = data.draw(st.sampled_from(sorted(one.expects)))
    assume(name not in world.not_applicable and name not in one.excluded_by)
    assume((one.id,) in network(world).scores)

    def against_nothing(seen: dict[str, float]) -> float:
        of = network(World(rules, seen, world.not_applicable))
        return of.scores[(one.id,)] - of.scores[NONE]

    without = {key: value for key, value in world.seen.items() if key != name}
    faint, strong = ({**without, name: share * strength} for share in (0.5, 1.0))
    clear = {**without, name: -strength}
    assert against_nothing(clear) < against_nothing(without) < against_nothing(strong)
    assert against_nothing(faint) <= against_nothing(strong)


def test_ruling_out_divides_by_fifty_however_often_and_unknown_rules_out_nothing() -> None:
    rules = RuleSet(
        (finding("own"), finding("against"), finding("again")),
        (cause("c", 1.0, ("against", "again"), own=0.9), cause("d", own=0.9)),
    )

    def odds(**seen: float) -> float:
        shares = network(World(rules, {"own": LN_1000, **seen})).posterior
        return shares[("c",)] / shares[("d",)]

    assert odds() == pytest.approx(1)
    assert odds(against=-LN_1000) == pytest.approx(1)
    assert odds(against=LN_1000) == pytest.approx(1 / 50)
    assert odds(against=LN_1000, again=LN_1000) == pytest.approx(1 / 50)
    assert odds(against=1e-6) == pytest.approx(1 / 50), "holding is enough: how nearly does not matter"


def test_a_cause_goes_where_none_of_its_own_findings_applies() -> None:
    rules = RuleSet(
        (finding("gpu"), finding("more"), finding("own"), finding("pain", kind="symptom", usual=0.5)),
        (cause("c", gpu=0.9, more=0.9, pain=0.9), cause("d", own=0.9)),
    )
    partly = network(World(rules, {"pain": LN_1000}, frozenset({"gpu"})))
    gone = network(World(rules, {"pain": LN_1000}, frozenset({"gpu", "more"})))
    assert set(partly.causes) == {"c", "d"}
    assert set(gone.causes) == {"d"}
    assert gone.posterior.keys() == {NONE, OTHER_SET, ("d",)}
    assert gone.probability("c") == 0


def test_deprecated_causes_are_not_ranked() -> None:
    rules = RuleSet((finding("f"),), (cause("c", f=0.9), dataclasses.replace(cause("d", f=0.9), status="deprecated")))
    assert set(network(World(rules, {})).causes) == {"c"}


@given(worlds(), st.floats(0.5, 100.0))
def test_temperature_never_touches_the_prior(world: World, temperature: float) -> None:
    warm, plain = network(world, temperature), network(world, 1.0)
    assert warm.ln_priors == plain.ln_priors
    empty = World(world.rules, {}, world.not_applicable)
    assert network(empty, temperature).posterior == network(empty).posterior
    for chosen in plain.scores:
        fixed = plain.prior(chosen) + plain.exclusion(chosen)
        if chosen in warm.scores:
            assert warm.scores[chosen] - fixed == pytest.approx((plain.scores[chosen] - fixed) / temperature, abs=1e-9)


def three_faults(**seen: float) -> Network:
    causes = tuple(cause(name, 1.0, **{f"{name}-one": 0.9, f"{name}-two": 0.9}) for name in "abcd")
    of = tuple(finding(f"{name}-{part}", 0.02) for name in "abcd" for part in ("one", "two"))
    return network(World(RuleSet(of, causes), {name.replace("_", "-"): value for name, value in seen.items()}))


def both(*names: str) -> dict[str, float]:
    return {f"{name}_{part}": LN_1000 for name in names for part in ("one", "two")}


def test_sets_of_three_appear_where_two_leave_a_specific_finding_unexplained() -> None:
    two, three = three_faults(**both("a", "b")), three_faults(**both("a", "b", "c"))
    assert max(len(chosen) for chosen in two.posterior) == 2
    assert ("a", "b", "c") in three.posterior
    assert three.probability("a") > 0.9
    assert three.probability("c") > 0.9
    assert three.posterior[("a", "b", "c")] > 0.9


def test_a_symptom_left_unexplained_asks_for_no_set_of_three() -> None:
    rules = RuleSet(
        (finding("own"), finding("pain", 0.02, "symptom", 0.0)),
        tuple(cause(name, own=0.9) for name in "abc"),
    )
    of = network(World(rules, {"own": LN_1000, "pain": math.log(2)}))
    assert max(len(chosen) for chosen in of.posterior) == 2


@pytest.mark.parametrize(("weight", "largest"), [(0.5, 2), (0.49, 3)])
def test_a_finding_expected_at_half_is_explained(weight: float, largest: int) -> None:
    rules = RuleSet((finding("own", 0.0005),), tuple(cause(name, 10.0, own=weight) for name in "abc"))
    of = network(World(rules, {"own": LN_1000}))
    assert max(len(chosen) for chosen in of.posterior) == largest


def test_only_the_twenty_likeliest_causes_meet_in_threes() -> None:
    causes = tuple(cause(f"c{index:02}", 1.0 + index, **{f"f{index:02}": 0.9}) for index in range(24))
    of = network(World(RuleSet(tuple(finding(f"f{index:02}") for index in range(24)), causes),
                       {f"f{index:02}": LN_1000 for index in range(3)}))  # fmt: skip
    threes = [chosen for chosen in of.posterior if len(chosen) == 3]
    assert len(threes) == math.comb(20, 3)
    assert ("c00", "c01", "c02") in threes


def test_a_hard_fact_decides_by_its_small_leak() -> None:
    """An Xid on a service that is still well, among sixty causes."""

    def named(leak: float) -> float:
        of = (finding("xid", leak), finding("pain", 0.02, "symptom", 0.5), finding("f"))
        causes = (cause("dead", xid=0.99, pain=0.5), *(cause(f"c{index}", f=0.9) for index in range(59)))
        return network(World(RuleSet(of, causes), {"xid": LN_1000, "pain": -LN_1000})).probability("dead")

    assert named(0.001) > 0.6 > named(0.02)
