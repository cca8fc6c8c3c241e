"""What differs between two sets of rules, one line for each thing an author did."""

from __future__ import annotations

from pathlib import Path

import pytest

from latdoctor.diagnosis import rule_loader
from latdoctor.diagnosis.comparison import RuleChange, rule_changes
from tests.diagnosis.small_rules import CAUSES, FINDINGS, cause, written

FILES = {name: cause(name, *row) for name, row in CAUSES.items()}


def changes(tmp_path: Path, findings: str = FINDINGS, causes: dict[str, str] | None = None) -> tuple[RuleChange, ...]:
    old = rule_loader.read([written(tmp_path / "old")])
    return rule_changes(old, rule_loader.read([written(tmp_path / "new", findings, causes)]))


def test_the_same_rules_elsewhere_are_the_same(tmp_path: Path) -> None:
    assert changes(tmp_path, "# a remark more\n" + FINDINGS) == ()


CHANGES = [
    ("long inputs, when: input.length.mean > 10", "long inputs, when: input.length.mean > 12",
     "long", "when: input.length.mean > 10 → input.length.mean > 12"),
    ("when: input.length.mean > 10", "when: {all: [input.length.mean > 10, queue.depth > 1]}",
     "long", "when: now queue.depth > 1"),
    ("when: input.length.mean > 10", "when: {not: {not: input.length.mean > 10}}", "long", "when: combined otherwise"),
    ("when: input.length.mean > 10", "when: {is: input.length.mean > 10, ramp: [1, 20]}",
     "long", "when: input.length.mean > 10 → input.length.mean > 10 (clear at 1, certain at 20)"),
    ("{id: long, message: long inputs", "{id: long, message: longer inputs",
     "long", "message: long inputs → longer inputs"),
    ("severity: critical,\n   usual: 50%", "severity: warning,\n   usual: 40%", "slow", "severity: critical → warning"),
    ("severity: critical,\n   usual: 50%", "severity: critical,\n   usual: 40%", "slow", "usual: 50 % → 40 %"),
    ("id: xid, message: an Xid, when: gpu.ecc.uncorrectable > 10, tier: infrastructure, severity: critical, leak: 0.1%",
     "id: xid, message: an Xid, when: gpu.ecc.uncorrectable > 10, tier: infrastructure, severity: critical, leak: 1%",
     "xid", "leak: 0.1 % → 1 %"),
    ("not_applicable_when: server.backend = cpu}\n- {id: copies", "group: gpu}\n- {id: copies",
     "launches", "not_applicable_when: no longer server.backend = cpu"),
]  # fmt: skip


@pytest.mark.parametrize(("before", "after", "finding", "message"), CHANGES)
def test_a_changed_finding(tmp_path: Path, before: str, after: str, finding: str, message: str) -> None:
    assert FINDINGS.count(before) == 1
    (change,) = changes(tmp_path, FINDINGS.replace(before, after))
    assert (change.kind, change.id, change.action) == ("finding", finding, "changed")
    assert message in change.details


CAUSE_CHANGES = [
    ("{long: 95%, lonely: 90%, shared: 80%}", "{long: 90%, lonely: 90%, hot: 80%}",
     {"expects long: 95 % → 90 %", "expects shared no longer", "expects hot (80 %)"}),
    ("prior: 3", "prior: 5", {"prior: 3 → 5"}),
    ("excluded_by: [off]", "excluded_by: [hot]", {"excluded_by: no longer off", "excluded_by: now hot"}),
    ("explanation: why", "explanation: " + "long words " * 9, {"explanation: reworded"}),
    ("severity: warning", "severity: info", {"severity: warning → info"}),
]  # fmt: skip


@pytest.mark.parametrize(("before", "after", "message"), CAUSE_CHANGES)
def test_a_changed_cause(tmp_path: Path, before: str, after: str, message: set[str]) -> None:
    text = FILES["app.alone"]
    assert before in text
    (change,) = changes(tmp_path, causes={**FILES, "app.alone": text.replace(before, after)})
    assert (change.kind, change.id, change.action) == ("cause", "app.alone", "changed")
    assert set(change.details) == message


def test_what_is_new_and_what_is_gone(tmp_path: Path) -> None:
    fewer = {name: text for name, text in FILES.items() if name != "infra.dead"}
    found = changes(
        tmp_path, causes={**fewer, "infra.cold": cause("infra.cold", "infrastructure", expects="{hot: 50%}")}
    )
    assert [(one.action, one.id) for one in found] == [("added", "infra.cold"), ("removed", "infra.dead")]


def test_an_overlay_is_told_by_the_limit_that_it_changed(tmp_path: Path) -> None:
    base = written(tmp_path / "base")
    (tmp_path / "site" / "overlays").mkdir(parents=True)
    text = (
        "- {finding: long, limits: {input.length.mean: 20}, rationale: x}\n"
        "- {cause: app.twin, disable: true, rationale: y}\n"
    )
    (tmp_path / "site" / "overlays" / "hall.yaml").write_text(text)
    found = rule_changes(rule_loader.read([base]), rule_loader.read([base, tmp_path / "site"]))
    assert {one.id: one.details for one in found} == {
        "app.twin": ("disabled by the site: y",),
        "long": ("when: input.length.mean > 10 → input.length.mean > 20",),
    }
