"""Test cases of rules: contents, failures, and refusal of a case that cannot fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from latdoctor.diagnosis import rule_loader, rule_tests
from latdoctor.diagnosis.rule_schema import RuleSet
from latdoctor.errors import DefinitionError
from tests.diagnosis.small_rules import cause, written

FINDINGS = """
- {id: long, message: long inputs, when: input.length.mean > 10, tier: application, leak: 2%}
- {id: lonely, message: alone, when: batch.size.mean < 2, tier: application, leak: 2%}
- {id: slow, message: slow, when: latency.p99 > slo.p99, kind: symptom, required: true, severity: critical, usual: 50%,
   leak: 2%}
- {id: slower, message: slower, when: latency.p99 > 2 x baseline, kind: symptom, usual: 50%, leak: 2%}
- {id: xid, message: xid, when: "count(log.xid, code in [79]) > 0", tier: application, leak: 1%}
- {id: on-gpu, message: x, when: "server.backend = cuda", tier: application, leak: 1%}
"""

GOOD = """
cause: any.cause
cases:
  fires:
    slo: {p99: 500ms, error_ratio: 1%}
    evidence: {model/a: {input.length.mean: 900, batch.size.mean: 1, latency.p99: 2s, server.backend: cuda}}
    baseline: {model/a: {latency.p99: 100ms}}
    parents: {model/a: node/a}
    events: [{signal: log.xid, subject: node/a, code: 79, text: fell off the bus}]
    expect: {named: [any.cause], fired: [long, lonely, slow, slower, xid, on-gpu], verdict: critical}
  near-miss:
    evidence: {model/a: {input.length.mean: 9, batch.size.mean: 3}}
    looked: {node/a: [log.xid]}
    expect: {named: [], not_named: [any.cause], clear: [long, lonely, xid], unknown: [slow], verdict: inconclusive}
  healthy-but-busy:
    expect: {verdict: inconclusive}
  evidence-missing:
    expect: {unknown: [long]}
"""


@pytest.fixture
def rules(tmp_path: Path) -> RuleSet:
    text = cause("any.cause", expects="{long: 95%, lonely: 90%}")
    return rule_loader.read([written(tmp_path / "rules", FINDINGS, {"any.cause": text})])


def folder(tmp_path: Path, text: str, name: str = "any.cause") -> Path:
    made = tmp_path / "cases"
    made.mkdir(exist_ok=True)
    (made / f"{name}.yaml").write_text(text, encoding="utf-8")
    return made


def test_a_good_file_runs_and_every_case_comes_out(tmp_path: Path, rules: RuleSet) -> None:
    found = rule_tests.read_cases([folder(tmp_path, GOOD)], rules)
    assert [case.name for case in found] == list(rule_tests.KINDS)
    assert {case.name: rule_tests.run(case, rules).failures for case in found} == dict.fromkeys(rule_tests.KINDS, ())


FAILING = [
    ("named: [any.cause], fired", "named: [], fired", "named ['any.cause'], expected []"),
    ("fired: [long,", "clear: [long], fired: [", "long is fired, expected clear"),
    ("verdict: critical", "verdict: healthy", "verdict critical (critical, cause found), expected healthy"),
    ("unknown: [slow]", "fired: [slow]", "slow is not-evaluated, expected fired"),
    ("unknown: [long]", "named: [any.cause]", "named [], expected ['any.cause']"),
    ("named: [any.cause], fired", "not_named: [any.cause], fired", "any.cause is named at"),
]


@pytest.mark.parametrize(("before", "after", "message"), FAILING)
def test_a_case_that_comes_out_otherwise_says_how(
    tmp_path: Path, rules: RuleSet, before: str, after: str, message: str
) -> None:
    assert before in GOOD
    found = rule_tests.read_cases([folder(tmp_path, GOOD.replace(before, after))], rules)
    failures = [failure for case in found for failure in rule_tests.run(case, rules).failures]
    assert len(failures) == 1
    assert failures[0].startswith(message)


BAD = [
    ("expect: {verdict: inconclusive}", "expect: {}", "case healthy-but-busy expects nothing"),
    ("expect: {verdict: inconclusive}", "slo: {p99: 1s}", "lacks 'expect'"),
    ("unknown: [long]", "not_named: [any.caus]", "not_named speaks of 'any.caus', which is not in the rules"),
    ("unknown: [long]", "clear: [longer]", "clear speaks of 'longer', which is not in the rules"),
    ("unknown: [long]", "known: [long]", "expect has an unknown key 'known'"),
    ("verdict: critical", "verdict: dire", "'dire' is not one of"),
    ("error_ratio: 1%", "p95: 1s", "slo has an unknown key 'p95'"),
    ("p99: 500ms", "p99: fast", "'fast' is not a quantity"),
    ("input.length.mean: 900", "input.length.middle: 900", "is not in the signal catalogue"),
    ("latency.p99: 2s", "latency.p99: 2GiB", "'2GiB' is a bytes, expected a time"),
    ("{input.length.mean: 9, batch.size.mean: 3}", "5", "signals and their values are expected"),
    ("signal: log.xid, subject", "signal: log.xyz, subject", "an event needs a catalogued signal and a subject"),
    ("[{signal: log.xid, subject: node/a, code: 79, text: fell off the bus}]", "log.xid", "'events' must be a list"),
    ("{node/a: [log.xid]}", "{node/a: [log.xyz]}", "'log.xyz' is not an event signal"),
    ("{node/a: [log.xid]}", "{node/a: [queue.depth]}", "'queue.depth' is not an event signal"),
    ("{node/a: [log.xid]}", "{node/a: log.xid}", "a list of event signals is expected"),
    ("  evidence-missing:", "  another:", "any.cause has no case evidence-missing"),
    ("cause: any.cause", "cause: any.other", "the cause 'any.other' differs from the file's name"),
    ("cases:", "comment: x\ncases:", "cases file has an unknown key 'comment'"),
]


@pytest.mark.parametrize(("before", "after", "message"), BAD)
def test_a_case_file_with_a_problem_is_refused(
    tmp_path: Path, rules: RuleSet, before: str, after: str, message: str
) -> None:
    assert before in GOOD
    with pytest.raises(DefinitionError) as caught:
        rule_tests.read_cases([folder(tmp_path, GOOD.replace(before, after))], rules)
    assert any(message in problem.what for problem in caught.value.problems), str(caught.value)


def test_problems_of_all_files_come_at_once(tmp_path: Path, rules: RuleSet) -> None:
    folder(tmp_path, "cause: [unclosed\n", "broken")
    folder(tmp_path, GOOD.replace("any.cause", "gone.cause"), "gone.cause")
    with pytest.raises(DefinitionError) as caught:
        rule_tests.read_cases([folder(tmp_path, GOOD.replace("verdict: critical", "verdict: dire"))], rules)
    told = str(caught.value)
    for message in ("not valid YAML", "the rules have no cause 'gone.cause'", "'dire' is not one of"):
        assert message in told
