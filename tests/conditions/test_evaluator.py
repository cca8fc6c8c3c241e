"""Evaluated conditions: holds, fails and unknown."""

from __future__ import annotations

import math

import pytest

from latdoctor.conditions.evaluator import FAILS, HOLDS, UNKNOWN, Facts, candidates, evaluate
from latdoctor.evidence.model import Gap
from tests.evidence.builders import condition, facts, reading, xid

NAN, INF = math.nan, math.inf


def status(text: str, given: Facts, subject: str = "model/a") -> str:
    return evaluate(condition(f'"{text}"' if text[0] not in "{[" else text), subject, given).status


SIMPLE = [
    ("queue.depth > 5", 6, HOLDS),
    ("queue.depth > 5", 5, FAILS),
    ("queue.depth >= 5", 5, HOLDS),
    ("queue.depth >= 5", 4, FAILS),
    ("queue.depth < 5", 4, HOLDS),
    ("queue.depth < 5", 5, FAILS),
    ("queue.depth <= 5", 5, HOLDS),
    ("queue.depth <= 5", 6, FAILS),
    ("queue.depth = 5", 5, HOLDS),
    ("queue.depth = 5", 6, FAILS),
    ("queue.depth != 5", 6, HOLDS),
    ("queue.depth != 5", 5, FAILS),
    ("queue.depth in [4, 5]", 5, HOLDS),
    ("queue.depth in [4, 5]", 6, FAILS),
    ("queue.depth > 0", 0, FAILS),
    ("queue.depth > 0", 1, HOLDS),
    ("queue.depth <= 0", 0, HOLDS),
    ("latency.p99 within 20% of 100ms", 0.12, HOLDS),
    ("latency.p99 within 20% of 100ms", 0.08, HOLDS),
    ("latency.p99 within 20% of 100ms", 0.121, FAILS),
    ("latency.p99 within 20% of 100ms", 0.079, FAILS),
    ("latency.p99 within 0% of 100ms", 0.1, HOLDS),
    ("queue.depth within 20% of 0", 0, HOLDS),
    ("queue.depth within 20% of 0", 0.1, FAILS),
    ("gpu.temperature_margin < 0C", -3, HOLDS),
    ("gpu.temperature_margin < -5C", -3, FAILS),
    ("gpu.temperature_margin within 50% of -4C", -3, HOLDS),
    ("batch.size.dip_p < 0.01", 0.009, HOLDS),
    ("batch.size.dip_p < 0.01", 0.01, FAILS),
    ("batch.size.dip_p <= 0.01", 0.01, HOLDS),
    ("gpu.row_remap.pending = 1", 1, HOLDS),
    ("gpu.row_remap.pending = 1", 0, FAILS),
    ("server.backend = cpu", "cpu", HOLDS),
    ("server.backend = cpu", "cuda", FAILS),
    ("server.backend != cpu", "cuda", HOLDS),
    ("server.backend in [cpu, cuda]", "cuda", HOLDS),
    ("server.backend in [cpu, cuda]", "tpu", FAILS),
]


@pytest.mark.parametrize(("text", "value", "expected"), SIMPLE)
def test_a_known_value_is_compared(text: str, value: float | str, expected: str) -> None:
    assert status(text, facts(reading(text.split(maxsplit=1)[0], value))) == expected


@pytest.mark.parametrize(("text", "value", "expected"), SIMPLE)
def test_a_missing_value_is_unknown_and_so_is_its_negation(text: str, value: float | str, expected: str) -> None:
    assert status(text, facts(reading("latency.mean", 1.0))) == UNKNOWN
    assert status(f'{{not: "{text}"}}', facts()) == UNKNOWN


@pytest.mark.parametrize("value", [NAN, INF, -INF])
@pytest.mark.parametrize("text", [row[0] for row in SIMPLE if "backend" not in row[0]])
def test_nan_and_infinities_are_unknown_whatever_the_operator(text: str, value: float) -> None:
    signal = text.split(maxsplit=1)[0]
    found = evaluate(condition(f'"{text}"'), "model/a", facts(reading(signal, value)))
    assert (found.status, found.ln_lambda, found.missing) == (UNKNOWN, 0.0, (signal,))


REFERRED = [
    ("latency.p99 > slo.p99", 0.6, {"slo.p99": 0.5}, HOLDS, "600 ms > 500 ms (slo.p99)"),
    ("latency.p99 > slo.p99", 0.4, {"slo.p99": 0.5}, FAILS, "400 ms > 500 ms (slo.p99)"),
    ("latency.p99 > 0.5 x slo.p99", 0.4, {"slo.p99": 0.5}, HOLDS, "400 ms > 250 ms (0.5 x slo.p99)"),
    ("latency.p99 > 2 x baseline", 0.6, {"baseline": 0.25}, HOLDS, "600 ms > 500 ms (2 x baseline)"),
    ("latency.p99 > 2 x baseline", 0.6, {"baseline": 0.5}, FAILS, "600 ms > 1 s (2 x baseline)"),
    ("latency.p99 < 0.5 x before", 0.6, {"before": 2.0}, HOLDS, "600 ms < 1 s (0.5 x before)"),
    ("latency.p99 within 20% of before", 0.6, {"before": 0.5}, HOLDS, "600 ms within 20 % of 500 ms (before)"),
    ("latency.p99 > 3 x latency.p50", 0.6, {"latency.p50": 0.1}, HOLDS, "600 ms > 300 ms (3 x latency.p50)"),
    # An integer that slipped in as a limit is multiplied as well.
    ("latency.p99 > 3 x latency.p50", 2.5, {"latency.p50": 1}, FAILS, "2.5 s > 3 s (3 x latency.p50)"),
    ("latency.p99 > 3 x baseline", 2.5, {"baseline": 1}, FAILS, "2.5 s > 3 s (3 x baseline)"),
]


def referring(value: float, limits: dict[str, float]) -> Facts:
    key = ("latency.p99", "model/a")
    return facts(
        reading("latency.p99", value),
        *(reading(name, limit) for name, limit in limits.items() if name.startswith("latency")),
        slo={name: limit for name, limit in limits.items() if name.startswith("slo")},
        baseline={key: limits["baseline"]} if "baseline" in limits else {},
        before={key: limits["before"]} if "before" in limits else {},
    )


@pytest.mark.parametrize(("text", "value", "limits", "expected", "shown"), REFERRED)
def test_a_limit_that_refers_to_something_is_printed_with_its_source(
    text: str, value: float, limits: dict[str, float], expected: str, shown: str
) -> None:
    found = evaluate(condition(f'"{text}"'), "model/a", referring(value, limits))
    (atom,) = found.atoms
    assert found.status == expected == atom.status
    assert f"{atom.shown} {atom.operator} {atom.limit}" == shown


@pytest.mark.parametrize("unknown", [None, NAN, INF])
@pytest.mark.parametrize("row", REFERRED)
def test_a_limit_that_is_not_known_leaves_the_comparison_unknown(
    row: tuple[str, float, dict[str, float], str, str], unknown: float | None
) -> None:
    text, value, limits, _, _ = row
    name = next(iter(limits))
    given = referring(value, {} if unknown is None else {name: unknown})
    found = evaluate(condition(f'"{text}"'), "model/a", given)
    assert (found.status, found.ln_lambda, found.missing) == (UNKNOWN, 0.0, (name,))


def test_a_limit_too_large_for_a_number_is_unknown() -> None:
    given = facts(reading("queue.depth", 1.0), baseline={("queue.depth", "model/a"): 1e308})
    assert status("queue.depth > 100 x baseline", given) == UNKNOWN


def test_a_multiple_of_a_baseline_of_zero_is_unknown_not_certain() -> None:
    """One waiting request is not "five times as many" because the healthy look happened to see none."""
    given = facts(reading("queue.depth", 1.0), baseline={("queue.depth", "model/a"): 0.0})
    for text in ("queue.depth > 5 x baseline", "queue.depth < 0.5 x baseline"):
        assert status(text, given) == UNKNOWN
    assert status("{prefer: queue.depth > 5 x baseline, otherwise: queue.depth > 50}", given) == FAILS
    assert status("queue.depth > baseline", given) == HOLDS, "plainly more than before"
    assert status("queue.depth within 20% of baseline", given) == FAILS


PREFER = "{prefer: latency.p99 > 2 x baseline, otherwise: latency.p99 > 1s}"


@pytest.mark.parametrize(
    ("value", "baseline", "expected", "limit"),
    [
        (0.6, 0.1, HOLDS, "200 ms (2 x baseline)"),
        (1.5, 1.0, FAILS, "2 s (2 x baseline)"),
        (1.5, None, HOLDS, "1 s"),
        (0.6, None, FAILS, "1 s"),
        (0.6, NAN, FAILS, "1 s"),
    ],
)
def test_prefer_uses_the_first_where_it_is_known_and_prints_the_one_used(
    value: float, baseline: float | None, expected: str, limit: str
) -> None:
    given = referring(value, {} if baseline is None else {"baseline": baseline})
    found = evaluate(condition(PREFER), "model/a", given)
    assert found.status == expected
    assert [atom.limit for atom in found.atoms] == [limit]


def test_prefer_is_unknown_only_where_both_are() -> None:
    assert status(PREFER, facts()) == UNKNOWN


LABELLED = (
    reading("batch.released", 3.0, labels=(("model", "m"), ("reason", "timeout"))),
    reading("batch.released", 1.0, labels=(("model", "m"), ("reason", "full"))),
    reading("batch.released", 4.0),
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("batch.released{reason=timeout} = 3/s", HOLDS),
        ("batch.released{reason=full} = 1/s", HOLDS),
        ("batch.released{reason=full,model=m} = 1/s", HOLDS),
        ("batch.released{reason=full,model=n} = 1/s", UNKNOWN),
        ("batch.released{reason=unheard} = 0/s", UNKNOWN),
        ("batch.released = 4/s", HOLDS),
    ],
)
@pytest.mark.parametrize("order", [1, -1])
def test_a_label_filter_chooses_and_without_one_the_unlabelled_total_is_meant(
    text: str, expected: str, order: int
) -> None:
    assert status(text, facts(*LABELLED[::order])) == expected


def test_the_latest_window_wins_and_a_known_value_over_an_unknown() -> None:
    old, new, blank = (reading("queue.depth", v, end=t) for v, t in ((1.0, 10.0), (9.0, 20.0), (NAN, 30.0)))
    for order in ((old, new, blank), (blank, new, old)):
        assert status("queue.depth = 9", facts(*order)) == HOLDS


FAMILY = {"gpu/0": "node/a", "gpu/1": "node/a", "process/7": "gpu/0"}


@pytest.mark.parametrize(
    ("subject", "expected"),
    [("gpu/0", HOLDS), ("process/7", HOLDS), ("gpu/1", UNKNOWN), ("node/a", UNKNOWN), ("gpu/9", UNKNOWN)],
)
def test_ancestors_supply_what_is_lacking_siblings_and_children_never(subject: str, expected: str) -> None:
    given = facts(reading("host.cpus", 8, "node/a"), reading("gpu.utilization", 0.9, "gpu/0"), parents=FAMILY)
    assert status("{all: [host.cpus = 8, gpu.utilization > 50%]}", given, subject) == expected


def test_the_nearest_ancestor_that_has_a_reading_supplies_it() -> None:
    given = facts(
        reading("queue.depth", 1, "node/a"),
        reading("queue.depth", 2, "gpu/0"),
        parents=FAMILY,
    )
    assert status("queue.depth = 2", given, "process/7") == HOLDS
    assert status("queue.depth = 1", given, "gpu/1") == HOLDS
    blank = facts(reading("queue.depth", 1, "node/a"), reading("queue.depth", NAN, "gpu/0"), parents=FAMILY)
    assert status("queue.depth = 1", blank, "process/7") == UNKNOWN, "its own blank is not filled from further up"


def test_a_loop_among_parents_ends() -> None:
    given = facts(reading("queue.depth", 1, "b"), parents={"a": "b", "b": "a"})
    assert status("queue.depth = 1", given, "a") == HOLDS
    assert status("latency.p99 > 1s", given, "a") == UNKNOWN


def test_a_baseline_is_taken_from_the_subject_an_ancestor_or_its_former_name_never_from_a_sibling() -> None:
    text = condition("queue.depth > 5 x baseline")
    here, there = reading("queue.depth", 60, "model/a"), reading("queue.depth", 60, "model/b")
    remembered = {("queue.depth", "model/a"): 1.0}
    assert evaluate(text, "model/a", facts(here, there, baseline=remembered)).status == HOLDS
    assert evaluate(text, "model/b", facts(here, there, baseline=remembered)).status == UNKNOWN
    assert evaluate(text, "model/b", facts(there, baseline=remembered)).status == HOLDS, "renamed: one then, one now"
    third = reading("queue.depth", 60, "model/c")
    assert evaluate(text, "model/b", facts(there, third, baseline=remembered)).status == UNKNOWN, "one then, two now"
    child = facts(reading("queue.depth", 60, "model/b"), baseline={("queue.depth", "server/s"): 1.0},
                  parents={"model/b": "server/s"})  # fmt: skip
    assert evaluate(text, "model/b", child).status == HOLDS


LOOKED = (("log.xid", "gpu/0"),)
COUNTS = [
    ("count(log.xid) > 0", (), (), UNKNOWN),
    ("count(log.xid) = 0", (), (), UNKNOWN),
    ("count(log.xid) > 0", (), LOOKED, FAILS),
    ("count(log.xid) = 0", (), LOOKED, HOLDS),
    ("count(log.xid) > 0", (xid(79.0),), LOOKED, HOLDS),
    ("count(log.xid) > 0", (xid(79.0),), (), HOLDS),
    ("count(log.xid) > 1", (xid(79.0),), LOOKED, FAILS),
    ("count(log.xid, code in [48, 79]) > 0", (xid(79.0),), LOOKED, HOLDS),
    ("count(log.xid, code in [48, 63]) > 0", (xid(79.0),), LOOKED, FAILS),
    ("count(log.xid, code not in [13]) > 0", (xid(79.0), xid(13.0)), LOOKED, HOLDS),
    ("count(log.xid, code not in [13]) > 0", (xid(13.0),), LOOKED, FAILS),
    ("count(log.xid, code in [79]) > 0", (xid("79"),), LOOKED, FAILS),
    ("count(log.xid, pci in [79]) > 0", (xid(79.0),), LOOKED, FAILS),
    ("count(log.sxid) > 0", (xid(79.0),), LOOKED, UNKNOWN),
]


@pytest.mark.parametrize(("text", "events", "looked", "expected"), COUNTS)
def test_none_found_is_zero_and_not_searched_is_unknown(text: str, events: tuple, looked: tuple, expected: str) -> None:
    assert status(text, facts(events=events, looked=looked), "gpu/0") == expected


def test_events_of_an_ancestor_count_and_a_siblings_do_not() -> None:
    given = facts(events=(xid(79.0, "node/a"), xid(48.0, "gpu/1")), looked=(("log.xid", "node/a"),), parents=FAMILY)
    assert status("count(log.xid) = 1", given, "gpu/0") == HOLDS
    assert status("count(log.xid) = 2", given, "gpu/1") == HOLDS
    assert status("count(log.xid) = 0", given, "gpu/9") == UNKNOWN


def test_what_was_read_is_shown_with_where_it_was_read() -> None:
    given = facts(events=(xid(79.0),), looked=LOOKED)
    (atom,) = evaluate(condition("count(log.xid, code in [79]) > 0"), "gpu/0", given).atoms
    assert (atom.signal, atom.shown, str(atom.origin)) == ("count(log.xid, code in [79])", "1", "dmesg.log (line 1)")
    assert atom.note == xid(79.0).text
    (none,) = evaluate(condition("count(log.xid, code in [48]) > 0"), "gpu/0", given).atoms
    assert (none.shown, none.status) == ("0", FAILS)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("queue.depth > 5", ("model/a", "model/gap")),
        ("{not: queue.depth > 5}", ("model/a", "model/gap")),
        ("count(log.xid) > 0", ("gpu/0", "gpu/1")),
        ("{any: [gpu.utilization > 50%, host.cpus > 4]}", ("gpu/0",)),
        ("host.cpus > 4", ("node/a",)),
        ("latency.p99 > 1s", ()),
        ("{prefer: queue.depth > 2 x baseline, otherwise: gpu.utilization > 50%}", ("gpu/0", "model/a", "model/gap")),
    ],
)
def test_the_subjects_a_condition_is_judged_on(text: str, expected: tuple[str, ...]) -> None:
    given = facts(
        reading("queue.depth", 6),
        reading("gpu.utilization", 0.9, "gpu/0"),
        reading("host.cpus", 8, "node/a"),
        parents=FAMILY,
        events=(xid(79.0),),
        looked=(("log.xid", "node/a"), ("log.xid", "gpu/1")),
        gaps=(
            Gap("page", "blank", ("queue.depth",), "model/gap"),
            Gap("page", "not asked", ("latency.p99", "queue.depth")),
        ),
    )
    assert tuple(sorted(candidates(condition(text), given)[0])) == expected
