"""Rule files: what is read, and that everything wrong in all of them is told at once, each with its place."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from latdoctor.conditions.ast import AllOf
from latdoctor.diagnosis import rule_loader
from latdoctor.errors import DefinitionError
from latdoctor.resources import folder
from tests.diagnosis.small_rules import CAUSES, cause, small_rules, written

GOOD = "- {id: long, message: long inputs, when: input.length.mean > 10, tier: application, leak: 2%}\n"
FIRST = {"any.cause": cause("any.cause")}


def problems(*folders: Path) -> list[str]:
    """What is wrong, as `file.yaml:line: what`."""
    with pytest.raises(DefinitionError) as caught:
        rule_loader.read(folders)
    return [f"{Path(problem.where).name}: {problem.what}" for problem in caught.value.problems]


def test_what_is_read_stands_in_the_order_of_ids(tmp_path: Path) -> None:
    rules = small_rules(tmp_path)
    assert [found.id for found in rules.causes] == sorted(CAUSES)
    assert [found.id for found in rules.findings] == sorted(found.id for found in rules.findings)
    assert rules.cause["infra.dead"].expects == {"xid": 0.99}
    assert rules.cause["app.alone"].excluded_by == ("off",)
    slow = rules.finding["slow"]
    assert (slow.kind, slow.required, slow.severity, slow.usual, slow.leak) == ("symptom", True, "critical", 0.5, 0.02)
    assert (slow.area, slow.tier, slow.specific) == ("small", "", False)
    assert slow.where.endswith("small.yaml:2")


def test_a_second_folder_adds_to_the_first(tmp_path: Path) -> None:
    one = written(tmp_path / "one", GOOD, FIRST)
    more = GOOD.replace("long", "longer")
    two = written(tmp_path / "two", more, {"site.cause": cause("site.cause", expects="{longer: 90%, long: 50%}")})
    rules = rule_loader.read([one, two])
    assert set(rules.finding) == {"long", "longer"}
    assert set(rules.cause) == {"any.cause", "site.cause"}


FINDING = [
    ("{message: x, when: queue.depth > 1, tier: application, leak: 2%}", "finding lacks 'id'"),
    ("{id: Bad_Id, message: x, when: queue.depth > 1, tier: application, leak: 2%}", "'Bad_Id' is not an id"),
    ("{id: f, when: queue.depth > 1, tier: application, leak: 2%}", "finding lacks 'message'"),
    ("{id: f, message: x, tier: application, leak: 2%}", "finding lacks 'when'"),
    ("{id: f, message: x, when: queue.deepness > 1, tier: application, leak: 2%}", "not in the signal catalogue"),
    ("{id: f, message: x, when: queue.depth > 1, leak: 2%}", "finding lacks 'tier'"),
    ("{id: f, message: x, when: queue.depth > 1, tier: hardware, leak: 2%}", "'hardware' is not one of"),
    ("{id: f, message: x, when: queue.depth > 1, tier: application}", "finding lacks 'leak'"),
    ("{id: f, message: x, when: queue.depth > 1, tier: application, leak: 0%}", "a leak lies between"),
    ("{id: f, message: x, when: queue.depth > 1, tier: application, leak: 11%}", "a leak lies between"),
    ("{id: f, message: x, when: queue.depth > 1, tier: application, leak: often}", "'often' is not a quantity"),
    ("{id: f, message: x, when: queue.depth>1, tier: application, leak: 2%, usual: 9%}", "only symptoms have a usual"),
    ("{id: f, message: x, when: queue.depth > 1, kind: symptom, leak: 2%}", "finding lacks 'usual'"),
    ("{id: f, message: x, when: queue.depth > 1, kind: pain, usual: 50%, leak: 2%}", "'pain' is not one of"),
    ("{id: f, message: x, when: queue.depth > 1, tier: application, leak: 2%, severity: bad}", "'bad' is not one of"),
    ("{id: f, message: x, when: queue.depth > 1, tier: application, leak: 2%, required: yes}", "'yes' is not one of"),
    ("{id: f, message: x, when: queue.depth > 1, tier: application, leak: 2%, weight: 3}", "unknown key 'weight'"),
    ('{id: f, message: "{queue.deepness}", when: queue.depth > 1, tier: application, leak: 2%}', "{queue.deepness}"),
    ("{id: f, id: g, message: x, when: queue.depth > 1, tier: application, leak: 2%}", "the key 'id' stands twice"),
    ("{id: f, message: &a x, when: queue.depth > 1, tier: application, leak: 2%}", "aliases and anchors"),
    ("just text", "finding must be a mapping"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), FINDING)
def test_a_bad_finding(tmp_path: Path, text: str, message: str) -> None:
    found = problems(written(tmp_path, f"{GOOD}- {text}\n", FIRST))
    assert any(row.startswith("small.yaml:2: ") and message in row for row in found), found


CAUSE_FILES = [
    ("any.cause", {"expects": "{long: 49%}"}, "expects long: a weight lies within 50–95 %, or is 99 %"),
    ("any.cause", {"expects": "{long: 96%}"}, "expects long: a weight lies within 50–95 %, or is 99 %"),
    ("any.cause", {"expects": "{long: 100%}"}, "expects long: a weight lies within 50–95 %, or is 99 %"),
    ("any.cause", {"expects": "{long: 150%}"}, "expects long: '150%' is not a share"),
    ("any.cause", {"expects": "{long: often}"}, "expects long: 'often' is not a quantity"),
    ("any.cause", {"expects": "{}"}, "a cause expects at least one finding"),
    ("any.cause", {"expects": "[long]"}, "'expects' must be a mapping"),
    ("any.cause", {"expects": "{longer: 90%}"}, "the cause any.cause names an unknown finding 'longer'"),
    ("any.cause", {"expects": "{pain: 90%}"}, "the cause any.cause expects no specific finding"),
    ("any.cause", {"more": "excluded_by: [longer]"}, "the cause any.cause names an unknown finding 'longer'"),
    ("any.cause", {"more": "excluded_by: [long]"}, "any.cause expects 'long' and is ruled out by it"),
    ("any.cause", {"more": "excluded_by: long"}, "'excluded_by' must be a list"),
    ("any.cause", {"more": "playbooks: [p]\nplaybooks_when: {longer: p}"}, "names an unknown finding 'longer'"),
    ("any.cause", {"more": "playbooks: [p]\nplaybooks_when: {long: q}"}, "names 'q': not of its playbooks"),
    ("any.cause", {"more": "weights: {}"}, "cause has an unknown key 'weights'"),
    ("any.cause", {"tier": "hardware"}, "tier: 'hardware' is not one of"),
    ("any.cause", {"severity": "bad"}, "severity: 'bad' is not one of"),
    ("any.cause", {"more": "escalate_after: soon"}, "escalate_after: 'soon' is not a quantity"),
    ("other.name", {}, "the id 'any.cause' differs from the file's name"),
]  # fmt: skip


@pytest.mark.parametrize(("file", "given", "message"), CAUSE_FILES)
def test_a_bad_cause(tmp_path: Path, file: str, given: dict[str, str], message: str) -> None:
    findings = GOOD + "- {id: pain, message: x, when: queue.depth > 1, kind: symptom, usual: 50%, leak: 2%}\n"
    found = problems(written(tmp_path, findings, {file: cause("any.cause", **given)}))
    assert any(row.startswith(f"{file}.yaml:") and message in row for row in found), found


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("prior: 3", "prior: 0", "relative odds lie between 0 and 100"),
        ("prior: 3", "prior: -1", "relative odds lie between 0 and 100"),
        ("prior: 3", "prior: nan", "relative odds lie between 0 and 100"),
        ("prior: 3", "prior: 101", "relative odds lie between 0 and 100"),
        ("prior: 3", "prior: often", "prior: "),
        ("prior: 3", "", "cause lacks 'prior'"),
        ("explanation: why", "", "cause lacks 'explanation'"),
        ("status: test", "status: new", "status: 'new' is not one of"),
        ("status: test", "status: stable", "stable cause 'any.cause' needs false_positives and references"),
        ("status: test", "", "stable cause 'any.cause' needs false_positives and references"),
        ("status: test", "status: stable\nreferences: [a]", "needs false_positives and references"),
        ("id: any.cause", "id: Any Cause", "'Any Cause' is not an id"),
        ("id: any.cause", "id: other", "the id 'other' is taken"),
    ],
)
def test_a_bad_line_in_a_cause(tmp_path: Path, before: str, after: str, message: str) -> None:
    text = cause("any.cause")
    assert before in text
    found = problems(written(tmp_path, GOOD, {"any.cause": text.replace(before, after)}))
    assert any(message in row for row in found), found


def test_a_stable_cause_with_its_false_positives_and_references_is_read(tmp_path: Path) -> None:
    text = cause("any.cause").replace("status: test", "false_positives: [a warm-up]\nreferences: [a page]")
    rules = rule_loader.read([written(tmp_path, GOOD, {"any.cause": text})])
    assert rules.cause["any.cause"].status == "stable"


def test_an_id_used_twice_is_told_at_the_second_place(tmp_path: Path) -> None:
    one = written(tmp_path / "one", GOOD + GOOD, FIRST)
    (one / "findings" / "zoo.yaml").write_text("\n" + GOOD, encoding="utf-8")
    two = written(tmp_path / "two", "[]\n", FIRST)
    found = problems(one, two)
    assert found == [
        "small.yaml:2: the id 'long' is used twice",
        "zoo.yaml:2: the id 'long' is used twice",
        "any.cause.yaml:2: the id 'any.cause' is used twice",
    ]


def test_a_copy_of_all_rules_is_one_problem_and_hides_no_other(tmp_path: Path) -> None:
    shutil.copytree(folder("rules"), tmp_path / "copy")
    (tmp_path / "copy" / "findings" / "latency.yml").write_text("[]\n", encoding="utf-8")
    found = problems(folder("rules"), tmp_path / "copy")
    assert len(found) == 2, found
    assert sum("ids are used twice" in row for row in found) == 1
    assert any("is not read" in row for row in found)


def test_every_problem_of_every_file_is_told_at_once(tmp_path: Path) -> None:
    base = written(tmp_path, GOOD + "- {id: deep, message: x, when: queue.deepness > 1, tier: nowhere, leak: 2%}\n", {
        "any.cause": cause("any.cause", expects="{long: 20%, deep: 90%}"),
        "broken": "id: [unclosed\n",
        "bound": cause("bound", expects="{missing: 90%}", more="wrong: 1"),
    })  # fmt: skip
    (base / "findings" / "broken.yaml").write_text("- {id: x\n", encoding="utf-8")
    (base / "findings" / "shape.yaml").write_text("id: x\n", encoding="utf-8")
    (base / "findings" / "empty.yaml").write_text("", encoding="utf-8")
    found = problems(base, tmp_path / "nowhere")
    for file, message in (
        ("broken.yaml:2", "not valid YAML"),
        ("empty.yaml", "the file is empty"),
        ("shape.yaml:1", "a findings file is a list of findings"),
        ("small.yaml:2", "'queue.deepness' is not in the signal catalogue"),
        ("small.yaml:2", "'nowhere' is not one of"),
        ("any.cause.yaml:7", "a weight lies within"),
        ("bound.yaml:12", "cause has an unknown key 'wrong'"),
        ("bound.yaml:2", "names an unknown finding 'missing'"),
        ("bound.yaml:2", "expects no specific finding"),
        ("nowhere", "is not a folder of rules"),
    ):
        assert any(row.startswith(file) and message in row for row in found), (file, message, found)
    assert sum("not valid YAML" in row for row in found) == 2
    assert not any("'deep'" in row for row in found), "those who name a finding with a problem did nothing wrong"


def test_the_message_ends_with_the_count_and_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError) as caught:
        rule_loader.read([written(tmp_path, "- {}\n", {})])
    lines = str(caught.value).splitlines()
    assert lines[-1].startswith(f"{len(lines) - 1} problems found")
    assert "contributing" in lines[-1]
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("cause/a.yaml", "holds no rules: they stand in findings/, causes/, overlays/, cases/"),
        ("cause/a.yaml", "is not read: did you mean causes/"),
        ("causes/a.yml", "is not read: the name of a file of rules ends in .yaml"),
    ],
)
def test_what_only_looks_like_rules_is_told(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / name).parent.mkdir()
    (tmp_path / name).write_text("id: a\n")
    with pytest.raises(DefinitionError, match=message):
        rule_loader.read([tmp_path])


def test_an_empty_folder_is_no_set_of_rules(tmp_path: Path) -> None:
    """Somebody meant rules by it, which are not there."""
    with pytest.raises(DefinitionError, match="holds no rules"):
        rule_loader.read([tmp_path])


def test_the_placeholder_of_a_bad_condition_is_never_seen(tmp_path: Path) -> None:
    """A finding without a condition would hold always: nothing may be read past a problem."""
    written(tmp_path, GOOD.replace("input.length.mean", "input.length.middle"), FIRST)
    assert problems(tmp_path)
    assert AllOf(()) not in [found.when for found in small_rules(tmp_path / "good").findings]
