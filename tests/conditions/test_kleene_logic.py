"""Laws of three-valued logic: conditions of any shape obey Kleene's tables, and their λ never contradicts them."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from latdoctor.conditions.ast import AllOf, AnyOf, Comparison, Condition, Constant, Given, Not, Prefer, SignalTerm
from latdoctor.conditions.evaluator import FAILS, HOLDS, UNKNOWN, Facts, evaluate
from tests.evidence.builders import facts, reading

SIGNALS = ("queue.depth", "requests.running", "input.length.mean", "batch.size.mean", "host.cpus")
TRUTH = {HOLDS: 1.0, UNKNOWN: 0.5, FAILS: 0.0}

# A value at its limit neither speaks for nor against; it is kept out here and tested by itself.
VALUES = st.one_of(st.none(), st.just(math.nan), st.floats(0, 9.9), st.floats(10.1, 1e6))
WORLDS = st.fixed_dictionaries(dict.fromkeys(SIGNALS, VALUES))
ATOMS = st.builds(
    lambda signal, operator: Comparison(
        SignalTerm(signal), operator, Constant((10.0,), "10"), f"{signal} {operator} 10"
    ),
    st.sampled_from(SIGNALS),
    st.sampled_from(["<", "<=", ">", ">=", "=", "!="]),
)


def grown(parts: st.SearchStrategy[Condition]) -> st.SearchStrategy[Condition]:
    several = st.lists(parts, min_size=1, max_size=4).map(tuple)
    return st.one_of(several.map(AllOf), several.map(AnyOf), parts.map(Not))


PLAIN = st.recursive(ATOMS, grown, max_leaves=12)
GATED = st.recursive(ATOMS, lambda parts: st.one_of(grown(parts), st.builds(Given, parts, parts)), max_leaves=12)
ANY_SHAPE = st.recursive(
    ATOMS,
    lambda parts: st.one_of(grown(parts), st.builds(Given, parts, parts), st.builds(Prefer, parts, parts)),
    max_leaves=12,
)


def world(values: dict[str, float | None]) -> Facts:
    return facts(*(reading(signal, value) for signal, value in values.items() if value is not None))


def by_the_tables(condition: Condition, values: dict[str, float | None]) -> float:
    """Kleene's strong logic with ½ for unknown: and is the least, or the greatest, not the complement."""
    match condition:
        case AllOf(parts):
            return min(by_the_tables(part, values) for part in parts)
        case AnyOf(parts):
            return max(by_the_tables(part, values) for part in parts)
        case Not(part):
            return 1 - by_the_tables(part, values)
        case Given(part, enough):
            return by_the_tables(part, values) if by_the_tables(enough, values) == 1 else 0.5
        case Prefer(first, otherwise):
            preferred = by_the_tables(first, values)
            return preferred if preferred != 0.5 else by_the_tables(otherwise, values)
    value = values[condition.left.signal]
    if value is None or math.isnan(value):
        return 0.5
    return float(
        {"<": value < 10, "<=": value < 10, ">": value > 10, ">=": value > 10, "=": False, "!=": True}[
            condition.operator
        ]
    )


@given(ANY_SHAPE, WORLDS)
def test_the_status_follows_the_tables(condition: Condition, values: dict[str, float | None]) -> None:
    assert TRUTH[evaluate(condition, "model/a", world(values)).status] == by_the_tables(condition, values)


@given(ANY_SHAPE, WORLDS)
def test_lambda_is_on_the_side_of_the_status(condition: Condition, values: dict[str, float | None]) -> None:
    found = evaluate(condition, "model/a", world(values))
    assert (found.ln_lambda > 0, found.ln_lambda < 0) == (found.status == HOLDS, found.status == FAILS)
    assert abs(found.ln_lambda) <= math.log(1000)


def told(values: dict[str, float | None]) -> Facts:
    return world({signal: 11.0 if value is None or math.isnan(value) else value for signal, value in values.items()})


@given(GATED, WORLDS)
def test_learning_a_value_never_changes_what_was_known(condition: Condition, values: dict[str, float | None]) -> None:
    before = evaluate(condition, "model/a", world(values)).status
    assert before in (UNKNOWN, evaluate(condition, "model/a", told(values)).status)


@given(PLAIN, WORLDS)
def test_where_everything_is_known_nothing_is_unknown(condition: Condition, values: dict[str, float | None]) -> None:
    assert evaluate(condition, "model/a", told(values)).status != UNKNOWN


@given(PLAIN, WORLDS)
def test_not_not_is_nothing_and_de_morgan_holds(condition: Condition, values: dict[str, float | None]) -> None:
    given_world = world(values)
    assert evaluate(Not(Not(condition)), "model/a", given_world) == evaluate(condition, "model/a", given_world)
    pair = (condition, Comparison(SignalTerm("queue.depth"), ">", Constant((10.0,), "10"), ""))
    some = evaluate(Not(AnyOf(pair)), "model/a", given_world)
    every = evaluate(AllOf(tuple(Not(part) for part in pair)), "model/a", given_world)
    assert (some.status, some.ln_lambda) == (every.status, every.ln_lambda)


@given(st.lists(PLAIN, min_size=1, max_size=4), WORLDS, st.randoms())
def test_the_order_of_parts_means_nothing(parts: list[Condition], values: dict[str, float | None], random) -> None:
    shuffled = random.sample(parts, len(parts))
    for combine in (AllOf, AnyOf):
        one, two = (evaluate(combine(tuple(order)), "model/a", world(values)) for order in (parts, shuffled))
        assert (one.status, one.ln_lambda) == (two.status, two.ln_lambda)


@given(GATED, WORLDS)
def test_what_is_unknown_names_what_is_missing_or_why_it_is_not_enough(
    condition: Condition, values: dict[str, float | None]
) -> None:
    found = evaluate(condition, "model/a", world(values))
    blank = {signal for signal, value in values.items() if value is None or math.isnan(value)}
    assert set(found.missing) <= blank
    assert found.missing or found.unsettled or found.status != UNKNOWN
