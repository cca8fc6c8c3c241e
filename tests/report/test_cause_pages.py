"""The page of a cause says all that its rules say, and what tells it from others; and every cause has enough to say."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from latdoctor.conditions.ast import signals_of
from latdoctor.diagnosis import rule_loader
from latdoctor.diagnosis.confusable_causes import confusable_pairs, neighbours
from latdoctor.diagnosis.rule_schema import Cause, Finding
from latdoctor.evidence.catalogue import TIERS
from latdoctor.lab.cluster.cluster_faults import FAULTS
from latdoctor.lab.scenario import find, names
from latdoctor.lab.telemetry.generate import INCIDENT_KINDS
from latdoctor.report import reference_pages
from latdoctor.report.explain import in_words, of_cause, of_finding, reason
from latdoctor.report.reference_pages import can_judge
from tests.cli.incident_cases import NONE, incident_cases
from tests.diagnosis.small_rules import cause as cause_text
from tests.diagnosis.small_rules import small_rules, written
from tests.evidence.builders import condition

RULES = rule_loader.shipped()
PAGES = reference_pages.pages(RULES, confusable_pairs())
SECTIONS = (
    "Expected findings", "Explanation", "Confirmation", "Remediation", "Similar causes", "False positives",
    "Sources", "Signals", "References",
)  # fmt: skip
FEWEST_WORDS = 20  # of an explanation; what confirms and mends may be one command
by_cause = pytest.mark.parametrize("cause", RULES.causes, ids=lambda one: one.id)


@by_cause
def test_a_cause_lacks_nothing(cause: Cause) -> None:
    assert len(cause.explanation.split()) >= FEWEST_WORDS
    assert len(cause.confirm.split()) >= FEWEST_WORDS * 3 // 4
    assert len(cause.remediation.split()) >= FEWEST_WORDS * 3 // 4
    assert cause.owner
    assert cause.next_look.startswith("latdoctor ")
    assert cause.false_positives
    assert len(cause.references) >= 2
    assert len(set(cause.references)) == len(cause.references)
    for address in cause.references:
        parts = urlsplit(address)
        assert parts.scheme == "https", address
        assert "." in parts.netloc, address


@pytest.mark.parametrize("finding", RULES.findings, ids=lambda one: one.id)
def test_every_limit_has_its_reason(finding: Finding) -> None:
    assert finding.rationale


def test_every_cause_can_be_produced() -> None:
    """Played on the reference server or in the cluster, made as telemetry of hardware, or seen in an incident."""
    played = {truth.cause for name in names() for truth in find(name).causes}
    played |= {cause for fault in FAULTS for cause in fault.causes}
    made = {kind.cause for kind in INCIDENT_KINDS if kind.cause}
    seen = {case.cause for case in incident_cases()} - {NONE}
    assert {one.id for one in RULES.causes} == played | made | seen


@by_cause
def test_the_page_says_all_that_its_rules_say(cause: Cause) -> None:
    text = PAGES[f"{cause.id}.md"]
    against = ("Findings against it",) if cause.excluded_by else ()
    titles = tuple(line[3:] for line in text.splitlines() if line.startswith("## "))
    assert titles == (*SECTIONS[:5], *against, *SECTIONS[5:])
    for name in cause.expects:
        finding = RULES.finding[name]
        assert f"**`{name}`**" in text
        assert in_words(finding.when) in text
        assert finding.rationale in text
    told = (cause.title, cause.explanation, cause.confirm, cause.remediation, cause.next_look)
    for said in (*told, *cause.references, *cause.false_positives, *cause.excluded_by):
        assert said in text


@by_cause
def test_the_page_names_every_hard_neighbour_and_links_to_it(cause: Cause) -> None:
    text = PAGES[f"{cause.id}.md"]
    for other in {name for pair in confusable_pairs() if cause.id in pair for name in pair} - {cause.id}:
        assert f"### {RULES.cause[other].title} (hard to distinguish)" in text
        assert f"[`{other}`]({other}.md)" in text


@by_cause
def test_every_finding_can_be_judged_by_some_look(cause: Cause) -> None:
    """Alone by one source, or by two together, which is then said."""
    looks = PAGES[f"{cause.id}.md"].partition("## Sources\n")[2].partition("\n## ")[0]
    assert [name for name in cause.expects if f"`{name}`" not in looks] == []


def test_links_lead_somewhere() -> None:
    for name, text in PAGES.items():
        for target in re.findall(r"\]\(([^)#]*)(?:#[\w-]+)?\)", text):
            assert target in PAGES, f"{name}: {target}"


def test_the_list_has_every_cause_once_below_its_tier() -> None:
    by_tier = dict(zip(TIERS, re.split(r"^## \w+$", PAGES["README.md"], flags=re.MULTILINE)[1:], strict=True))
    for cause in RULES.causes:
        assert PAGES["README.md"].count(f"({cause.id}.md)") == 1
        assert f"| [`{cause.id}`]({cause.id}.md) | {cause.title} | {cause.severity} |" in by_tier[cause.tier]


def test_no_row_of_a_table_is_broken() -> None:
    for name, text in PAGES.items():
        for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
            assert len({row.count("|") for row in block.splitlines()}) == 1, f"{name}: {block[:80]}"


WORDS = [
    ("queue.depth > 4", "`queue.depth > 4`"),
    ("{is: queue.time_share > 50%, ramp: [20%, 80%]}", "`queue.time_share > 50%` (surely not at 20 %, surely at 80 %)"),
    ("{all: [queue.depth > 4, batch.size.mean < 2]}", "`queue.depth > 4` and `batch.size.mean < 2`"),
    (
        "{all: [{any: [queue.depth > 4, queue.depth > 5]}, {not: batch.size.mean < 2}]}",
        "(`queue.depth > 4` or `queue.depth > 5`) and not `batch.size.mean < 2`",
    ),
    (
        "{all: [{all: [queue.depth > 4]}], given: trace.kernels >= 20}",
        "`queue.depth > 4`, unknown unless `trace.kernels >= 20`",
    ),
    (
        "{prefer: queue.depth > 5 x baseline, otherwise: queue.depth > 50}",
        "`queue.depth > 5 x baseline`; where that is not known, `queue.depth > 50`",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("text", "words"), WORDS)
def test_a_condition_in_words(text: str, words: str) -> None:
    assert in_words(condition(text)) == words


JUDGED = [
    ("queue.depth > 4", {"queue.depth"}, True),
    ("queue.depth > 4", {"batch.size.mean"}, False),
    ("latency.p99 > slo.p99", {"latency.p99"}, True),
    ("queue.depth > 5 x baseline", {"queue.depth"}, True),
    ("arrival.rate > 1.1 x completion.rate", {"arrival.rate"}, False),
    ("arrival.rate > 1.1 x completion.rate", {"arrival.rate", "completion.rate"}, True),
    ("{all: [queue.depth > 4, batch.size.mean < 2]}", {"queue.depth"}, False),
    ("{any: [queue.depth > 4, batch.size.mean < 2]}", {"queue.depth"}, True),
    ("{not: queue.depth > 4}", set(), False),
    ("{all: [queue.depth > 4], given: trace.kernels >= 20}", {"queue.depth"}, False),
    ("{prefer: queue.depth > 4, otherwise: batch.size.mean < 2}", {"batch.size.mean"}, True),
]


@pytest.mark.parametrize(("text", "signals", "judged"), JUDGED)
def test_who_can_judge_a_condition(text: str, signals: set[str], judged: bool) -> None:
    assert can_judge(condition(text), frozenset(signals)) is judged
    assert can_judge(condition(text), frozenset(signals_of(condition(text))))


def test_a_reason_that_is_another_s_tells_that_too() -> None:
    assert reason(RULES.finding["dcgm-power"], RULES) == (
        f"as dcgm-memory-error ({RULES.finding['dcgm-memory-error'].rationale})"
    )


def test_on_the_screen_empty_parts_are_left_out_and_neighbours_are_told(tmp_path: Path) -> None:
    rules = small_rules(tmp_path)
    alone = rules.cause["app.alone"]
    told = [
        one for one in of_cause(alone, rules, neighbours(alone, rules, [("app.alone", "app.twin")])) if one.has_content
    ]
    assert [one.title for one in told] == [
        "Explanation", "Confirmation", "Remediation", "Expected findings", "Findings against it",
        "Similar causes",
    ]  # fmt: skip
    assert told[-1].lines == (
        "app.twin (app.twin is the matter): for this lonely (+17), long (+17); for that no long (+13), no lonely (+10)",
    )
    titles = [one.title for one in of_finding(rules.finding["long"], rules) if one.has_content]
    assert titles == ["Judged by", "", "Causes that expect it"]


def test_a_cause_like_no_other_says_so(tmp_path: Path) -> None:
    rules = rule_loader.read(
        [
            written(
                tmp_path,
                "- {id: long, message: long inputs, when: input.length.mean > 10, tier: application, leak: 2%}\n",
                {"any.cause": cause_text("any.cause", more="next_look: latdoctor diagnose")},
            )
        ]
    )
    assert "No other cause expects any of the same findings." in reference_pages.pages(rules, [])["any.cause.md"]
