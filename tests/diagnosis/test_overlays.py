"""Overlays: what a site changes in rules of others, and that nothing of it is ever silently without effect."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latdoctor.diagnosis import rule_loader
from latdoctor.diagnosis.evaluate import Provider
from latdoctor.diagnosis.rule_lint import lint
from latdoctor.diagnosis.rule_schema import RuleSet
from latdoctor.errors import DefinitionError
from tests.diagnosis.small_rules import FINDINGS, SIGNAL, check_of, diagnosed, evidence, told, written

MORE = """
- {id: warm, message: warm, when: {all: [{is: gpu.utilization > 50%, ramp: [20%, 80%]}, gpu.processes > 1]},
   tier: infrastructure, leak: 2%}
- {id: twice, message: twice, when: {any: [queue.depth > 3, queue.depth < 1]}, tier: application, leak: 2%}
- {id: same, message: same, when: {any: [queue.depth > 3, {all: [queue.depth > 3, gpu.processes > 1]}]},
   tier: application, leak: 2%}
"""


def overlaid(tmp_path: Path, text: str, *, name: str = "hall.yaml") -> RuleSet:
    return rule_loader.read(folders(tmp_path, text, name=name))


def folders(tmp_path: Path, text: str, *, name: str = "hall.yaml") -> list[Path]:
    base = written(tmp_path / "base", FINDINGS + MORE)
    site = tmp_path / "site"
    (site / "overlays").mkdir(parents=True, exist_ok=True)
    (site / "overlays" / name).write_text(text, encoding="utf-8")
    return [base, site]


def problems(tmp_path: Path, text: str) -> list[str]:
    with pytest.raises(DefinitionError) as caught:
        overlaid(tmp_path, text)
    return [f"{Path(problem.where).name}: {problem.what}" for problem in caught.value.problems]


def test_a_limit_of_the_site_is_judged_by_and_told(tmp_path: Path) -> None:
    rules = overlaid(tmp_path, "- {finding: long, limits: {input.length.mean: 200}, rationale: long is usual here}")
    check = check_of(told(rules, long=150.0), "long")
    assert check.status == "clear"
    (atom,) = check.atoms
    assert (atom.operator, atom.limit, atom.note) == (">", "200", "site threshold, shipped > 10")
    assert check_of(told(rules, long=250.0), "long").status == "fired"
    (limit,) = rules.finding["long"].site
    assert (limit.text, limit.shipped, limit.rationale) == (
        "input.length.mean > 200",
        "input.length.mean > 10",
        "long is usual here",
    )
    assert limit.where.endswith("overlays/hall.yaml:1")


def test_without_overlays_the_rules_are_as_shipped(tmp_path: Path) -> None:
    where = folders(tmp_path, "- {finding: long, limits: {input.length.mean: 200}, rationale: x}")
    plain = rule_loader.read(where, overlaid=False)
    assert plain.finding["long"].site == ()
    assert check_of(told(plain, long=150.0), "long").status == "fired"


@pytest.mark.parametrize("limit", ["1.5 x baseline", "0.5 x queue.depth"])
def test_a_limit_may_be_whatever_a_limit_may_be(tmp_path: Path, limit: str) -> None:
    rules = overlaid(tmp_path, f"- {{finding: long, limits: {{input.length.mean: {limit}}}, rationale: x}}")
    assert rules.finding["long"].site[0].text == f"input.length.mean > {limit}"


def test_bounds_are_kept_where_the_limit_stays_between_them_and_replaced_where_given(tmp_path: Path) -> None:
    kept = overlaid(tmp_path, "- {finding: warm, limits: {gpu.utilization: 60%}, rationale: x}")
    assert "ramp=(0.2, 0.8)" in str(kept.finding["warm"].when)
    given = "- {finding: warm, limits: {gpu.utilization: {limit: 90%, ramp: [85%, 95%]}}, rationale: x}"
    assert "ramp=(0.85, 0.95)" in str(overlaid(tmp_path, given).finding["warm"].when)


@pytest.mark.parametrize("name", ["queue.depth >", "queue.depth > 3"])
def test_a_signal_that_is_compared_twice_is_named_with_its_operator(tmp_path: Path, name: str) -> None:
    rules = overlaid(tmp_path, f"- {{finding: twice, limits: {{{name}: 7}}, rationale: x}}")
    assert [limit.text for limit in rules.finding["twice"].site] == ["queue.depth > 7"]
    assert "queue.depth < 1" in str(rules.finding["twice"].when)


def test_one_comparison_that_stands_twice_is_changed_in_both_places(tmp_path: Path) -> None:
    rules = overlaid(tmp_path, "- {finding: same, limits: {queue.depth: 7}, rationale: x}")
    assert str(rules.finding["same"].when).count("text='queue.depth > 7'") == 2


def test_a_disabled_finding_is_unknown_and_says_so(tmp_path: Path) -> None:
    rules = overlaid(tmp_path, "- {finding: long, disable: true, rationale: inputs are meant to be long}")
    diagnosis = told(rules, long=True)
    check = check_of(diagnosis, "long")
    assert (check.status, check.reason) == ("not-evaluated", "disabled by the site: inputs are meant to be long")
    everything = Provider("any", "--any", "costs nothing", frozenset(SIGNAL.values()))
    looks = diagnosed(rules, evidence({"shared": True}), providers=(everything,)).next_looks
    assert looks
    assert all("long" not in look.checks for look in looks), "no look would show it"


def test_a_disabled_cause_is_never_named(tmp_path: Path) -> None:
    text = "- {cause: app.alone, disable: true, rationale: it is what this service does}"
    states = {"long": True, "lonely": True, "shared": True, "slow": True}
    assert "app.alone" in told(rule_loader.read(folders(tmp_path, text), overlaid=False), **states).answer.causes
    rules = overlaid(tmp_path, text)
    assert all(cause.id != "app.alone" for cause in told(rules, **states).causes)
    assert all("app.alone" not in problem.what for problem in lint(rules))


FAR = "- {finding: slow, limits: {latency.p99: 1000000s}, rationale: never mind}"
HEALTH = [
    ("- {finding: slow, limits: {latency.p99: 50s}, rationale: slow by design}", {"slow": 5.0}, "healthy"),
    ("- {finding: slow, limits: {latency.p99: 50s}, rationale: slow by design}", {"slow": 20.0}, "inconclusive"),
    ("- {finding: slow, limits: {latency.p99: 50s}, rationale: slow by design}", {"slow": 100.0}, "critical"),
    ("- {finding: slow, limits: {latency.p99: 5s}, rationale: in a hurry}", {"slow": 7.0}, "critical"),
    (FAR, {"slow": 5.0}, "healthy"),
    (FAR, {"slow": 100.0}, "inconclusive"),
    (FAR, {"slow": None}, "inconclusive"),
    (FAR, {"slow": 100.0, "xid": True}, "critical"),
    ("- {finding: shared, limits: {requests.running: 1000000}, rationale: x}", {"shared": True}, "healthy"),
]


@pytest.mark.parametrize(("text", "states", "level"), HEALTH)
def test_a_service_is_healthy_only_by_the_shipped_limits_of_essentials_too(
    text: str, states: dict[str, float | None], level: str, tmp_path: Path
) -> None:
    """A limit that nothing reaches would call any service healthy."""
    diagnosis = told(overlaid(tmp_path, text), **states)
    assert diagnosis.verdict.level == level
    if (text, level) == (FAR, "inconclusive") and states["slow"]:
        assert "healthy by limits of the site only; by the shipped ones of essential checks it is critical" in (
            diagnosis.verdict.message
        )
        (doubt,) = diagnosis.verdict.reasons
        assert doubt == "site limit latency.p99 > 1000000s, shipped latency.p99 > 10s: never mind"


WRONG = [
    ("just text", "an overlay is a list of changes"),
    ("[]", ""),
    ("- {finding: long, limits: {input.length.mean: 200}}", "overlay lacks 'rationale'"),
    ("- {limits: {input.length.mean: 200}, rationale: x}", "names either a finding or a cause"),
    ("- {finding: long, cause: app.alone, disable: true, rationale: x}", "names either a finding or a cause"),
    ("- {finding: long, rationale: x}", "gives either limits or disable: true"),
    ("- {finding: long, limits: {}, rationale: x}", "gives either limits or disable: true"),
    ("- {finding: long, limits: {input.length.mean: 9}, disable: true, rationale: x}", "either limits or disable"),
    ("- {cause: app.alone, limits: {input.length.mean: 9}, rationale: x}", "a cause can only be disabled"),
    ("- {cause: app.alone, rationale: x}", "a cause can only be disabled"),
    ("- {finding: longer, disable: true, rationale: x}", "an unknown finding 'longer'"),
    ("- {cause: app.lonely, disable: true, rationale: x}", "an unknown cause 'app.lonely'"),
    ("- {finding: slow, disable: true, rationale: x}", "slow is required"),
    ("- {finding: long, limits: {queue.depth: 9}, rationale: x}", "compares no 'queue.depth', but input.length.mean"),
    ("- {finding: twice, limits: {queue.depth: 9}, rationale: x}", "'queue.depth > 3' or 'queue.depth < 1'"),
    ("- {finding: long, limits: {input.length.mean: 5GiB}, rationale: x}", "'5GiB' is a bytes"),
    ("- {finding: long, limits: {input.length.mean: soon}, rationale: x}", "'soon' is not a quantity"),
    ("- {finding: long, limits: {input.length.mean: [1]}, rationale: x}", "must be a mapping"),
    ("- {finding: long, limits: {input.length.mean: {limits: 9}}, rationale: x}", "unknown key 'limits'"),
    ("- {finding: warm, limits: {gpu.utilization: 90%}, rationale: x}", "leaves the bounds"),
    ("- {finding: warm, limits: {gpu.utilization: {limit: 90%, ramp: [95%, 99%]}}, rationale: x}", "must lie between"),
    ("- {finding: warm, limits: {gpu.utilization: {limit: 90%, ramp: [95%]}}, rationale: x}", "takes two quantities"),
    ("- {finding: long, leak: 5%, limits: {input.length.mean: 9}, rationale: x}", "unknown key 'leak'"),
    (
        "- {finding: long, limits: {input.length.mean: 9}, rationale: x}\n"
        "- {finding: long, limits: {input.length.mean: 8}, rationale: y}",
        "the limit of input.length.mean in long is changed twice",
    ),
    (
        "- {finding: long, disable: true, rationale: x}\n- {finding: long, disable: true, rationale: y}",
        "the finding long is disabled twice",
    ),
    (
        "- {finding: long, disable: true, rationale: x}\n"
        "- {finding: long, limits: {input.length.mean: 200}, rationale: y}",
        "the finding long is disabled and given another limit",
    ),
    (
        "- {finding: long, limits: {input.length.mean: 200}, rationale: y}\n"
        "- {finding: long, disable: true, rationale: x}",
        "the finding long is disabled and given another limit",
    ),
    (
        "- {cause: app.alone, disable: true, rationale: x}\n- {cause: app.alone, disable: true, rationale: y}",
        "the cause app.alone is disabled twice",
    ),
    ("- {finding: long, disable: true, rationale: x", "not valid YAML"),
]


@pytest.mark.parametrize(("text", "message"), WRONG)
def test_what_does_not_fit_is_a_problem_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    if not message:
        assert overlaid(tmp_path, text)
        return
    found = problems(tmp_path, text)
    assert any(row.startswith("hall.yaml:") and message in row for row in found), found


@pytest.mark.parametrize("name", ["overlay.yaml", "overlays.yml", "overlay/hall.yaml", "overlays/hall.yml"])
def test_what_looks_like_an_overlay_and_is_not_read_is_a_problem(tmp_path: Path, name: str) -> None:
    base, site = folders(tmp_path, "[]")
    (site / name).parent.mkdir(parents=True, exist_ok=True)
    (site / name).write_text("[]")
    with pytest.raises(DefinitionError) as caught:
        rule_loader.read([base, site])
    assert "is not read" in caught.value.problems[0].what


_WORD = st.sampled_from(
    ["finding", "cause", "limits", "disable", "rationale",
     "long", "warm", "app.alone", "limit", "ramp", "true", "9", "90%",
     "queue.depth", "gpu.utilization >", "input.length.mean", "5GiB", "", "[20%, 80%]", "1e999", "slo.p99"]
)  # fmt: skip
_TREE = st.recursive(
    _WORD, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_WORD, inner, max_size=4), max_leaves=12
)


@given(st.one_of(st.text(max_size=80), st.lists(_TREE, max_size=3).map(json.dumps)))
def test_any_overlay_gives_rules_or_problems(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    tmp_path = tmp_path_factory.getbasetemp() / "any-overlay"
    rules = None
    # A half of a surrogate pair cannot be written as UTF-8.
    with contextlib.suppress(DefinitionError, UnicodeEncodeError):
        rules = overlaid(tmp_path, text)
    assert rules is None or set(rules.finding) == set(rule_loader.read([tmp_path / "base"]).finding)
