"""The answer (why) and the verdict (how bad), rule by rule."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import pytest

from latdoctor.diagnosis.noisy_or import Network
from latdoctor.diagnosis.result import Check, RankedCause, RuledOut, Tier
from latdoctor.diagnosis.rule_schema import RuleSet
from latdoctor.diagnosis.verdict import answer, rank, verdict, walk
from latdoctor.evidence.catalogue import TIERS
from tests.diagnosis import brute_force as oracle
from tests.diagnosis.small_rules import ALL_CLEAR, at, cause_of, diagnosed, evidence, small_rules, told


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> RuleSet:
    return small_rules(tmp_path_factory.mktemp("rules"))


# --- the answer at its thresholds: probabilities are set, everything else is computed -----------------------------

OF = RuleSet(
    tuple(oracle.finding(name) for name in ("a", "b", "c", "ab", "weak", "stray")),
    (
        oracle.cause("ca", a=0.9, ab=0.9),
        oracle.cause("cb", b=0.9, ab=0.9),
        oracle.cause("cc", c=0.5),
        oracle.cause("cw", weak=0.49),
    ),
)
PAIN = oracle.finding("pain", kind="symptom", usual=0.5)


class Given(Network):
    """A network whose probabilities are given: those of single causes, disjoint."""

    given: Mapping[str, float] = {}

    def probability(self, *names: str) -> float:
        return sum(self.given.get(name, 0.0) for name in names)


def ranked(fired: tuple[str, ...], **given: float) -> tuple[tuple[RankedCause, ...], Network, tuple[Check, ...]]:
    seen = {found.id: 1.0 if found.id in fired else -1.0 for found in OF.findings}
    checks = oracle.World(OF, seen).checks
    made = Given.of(OF, checks)
    object.__setattr__(made, "given", given)
    return rank(OF, made, checks), made, checks


NAMING = [
    # P(ca), fired → confidence, named, grounded
    (0.90, ("a",), "confirmed", True, True),
    (0.95, ("ab",), "confirmed", True, True),
    (0.8999, ("a",), "likely", True, True),
    (0.60, ("a",), "likely", True, True),
    (0.5999, ("a",), "candidate", False, True),
    (0.99, (), "candidate", False, False),
    (0.99, ("b", "stray"), "candidate", False, False),
]


@pytest.mark.parametrize(("p", "fired", "confidence", "named", "grounded"), NAMING)
def test_a_cause_is_named_where_it_is_likely_and_grounded(
    p: float, fired: tuple, confidence: str, named: bool, grounded: bool
) -> None:
    found, _, _ = ranked(fired, ca=p)
    assert (found[0].confidence, found[0].named, found[0].grounded) == (confidence, named, grounded)


def test_grounding_takes_a_finding_expected_at_half_or_more() -> None:
    assert ranked(("c",), cc=0.9)[0][0].grounded
    assert not ranked(("weak",), cw=0.9)[0][0].grounded


def test_a_symptom_grounds_nothing() -> None:
    of = RuleSet((oracle.finding("own"), PAIN), (oracle.cause("c", own=0.9, pain=0.99),))
    checks = oracle.World(of, {"pain": 5.0}).checks
    found = rank(of, Network.of(of, checks), checks)
    assert not any(row.grounded or row.named for row in found)


ANSWERS = [
    # fired, P → kind, causes, unexplained
    ((), {}, "none", (), ()),
    (("a",), {"ca": 0.9}, "named", ("ca",), ()),
    (("a", "b"), {"ca": 0.9, "cb": 0.7}, "named", ("ca", "cb"), ()),
    (("a", "stray"), {"ca": 0.9}, "named", ("ca",), ("stray",)),
    (("a", "b"), {"ca": 0.9, "cb": 0.5}, "named", ("ca",), ("b",)),
    (("a",), {"cb": 0.99}, "unexplained", (), ("a",)),
    (("stray",), {}, "unexplained", (), ("stray",)),
    (("ab",), {"ca": 0.5, "cb": 0.3}, "one-of", ("ca", "cb"), ()),
    (("ab",), {"ca": 0.5, "cb": 0.1}, "one-of", ("ca", "cb"), ()),
    (("ab",), {"ca": 0.5, "cb": 0.09}, "unexplained", (), ("ab",)),
    (("ab", "c"), {"ca": 0.3, "cb": 0.25, "cc": 0.2}, "one-of", ("ca", "cb", "cc"), ()),
    (("ab", "c"), {"ca": 0.35, "cb": 0.05, "cc": 0.3}, "one-of", ("ca", "cc"), ()),
    (("ab", "c"), {"ca": 0.2, "cb": 0.2, "cc": 0.19}, "unexplained", (), ("c", "ab")),
    (("ab", "stray"), {"ca": 0.5, "cb": 0.3}, "one-of", ("ca", "cb"), ("stray",)),
    (("a",), {"ca": 0.5, "cb": 0.3}, "unexplained", (), ("a",)),  # cb is not grounded: no group of two
    (("ab",), {"ca": 0.59}, "unexplained", (), ("ab",)),  # one alone is no group
]


@pytest.mark.parametrize(("fired", "given", "kind", "causes", "unexplained"), ANSWERS)
def test_the_answer(fired: tuple, given: dict, kind: str, causes: tuple, unexplained: tuple) -> None:
    found, of, checks = ranked(fired, **given)
    said = answer(OF, of, found, checks)
    assert (said.kind, said.causes, said.unexplained) == (kind, causes, unexplained)


def test_the_order_is_named_then_probable_then_severe_then_by_id() -> None:
    of = RuleSet(
        tuple(oracle.finding(name) for name in "abcde"),
        tuple(oracle.cause(f"c{name}", **{name: 0.9}) for name in "abcde"),
    )
    severe = {"cd": "critical", "ce": "critical"}
    of = RuleSet(of.findings, tuple(dataclasses.replace(c, severity=severe.get(c.id, "warning")) for c in of.causes))
    checks = oracle.World(of, {"a": -1.0, "b": 1.0, "c": -1.0, "d": -1.0, "e": -1.0}).checks
    made = Given.of(of, checks)
    object.__setattr__(made, "given", {"ca": 0.9, "cb": 0.6, "cc": 0.3, "cd": 0.3, "ce": 0.3, "none": 0.01})
    assert [row.id for row in rank(of, made, checks)] == ["cb", "ca", "cd", "ce", "cc"]


@pytest.mark.parametrize(
    ("slow", "first"),
    [
        (False, "infra.dead"),  # the verdict is critical because of it
        (None, "infra.dead"),
        (True, "fw.bound"),  # it is critical anyway: the likelier one explains more
    ],
)
def test_of_the_named_causes_what_makes_the_verdict_stands_first(rules: RuleSet, slow: bool | None, first: str) -> None:
    checks = told(rules, xid=True, launches=True, copies=True, slow=slow).checks
    made = Given.of(rules, checks)
    object.__setattr__(made, "given", {"infra.dead": 0.7, "fw.bound": 0.98, "infra.heat": 0.99})
    found = rank(rules, made, checks)
    others = {"infra.dead", "fw.bound"} - {first}
    assert [row.id for row in found] == [first, *others, "infra.heat"], "what is not named comes after"


def test_improbable_causes_are_not_listed_and_ungrounded_ones_need_more() -> None:
    found, _, _ = ranked(("a", "b"), ca=0.02, cb=0.0199)
    assert [row.id for row in found] == ["ca"]
    found, _, _ = ranked(("a",), ca=0.02, cb=0.0999, cc=0.1)
    assert [row.id for row in found] == ["cc", "ca"]


# --- the verdict, from hand-made causes and checks ----------------------------------------------------------------


def check(name: str, status: str, **more: object) -> Check:
    base = {"message": f"{name} says", "tier": "application", "kind": "specific", "severity": "", "required": False}
    return Check(name, status, **{**base, "subjects": (), "ln_lambda": 0.0, "atoms": (), **more})  # type: ignore[arg-type]


def slo(status: str) -> Check:
    return check("p99", status, tier="", kind="symptom", severity="critical", required=True, reason="not seen")


def queue(status: str) -> Check:
    return check("queue", status, tier="", kind="symptom")


def xid(status: str) -> Check:
    return check("xid", status, tier="infrastructure", severity="critical")


def essential(tier: str, status: str = "not-evaluated", kind: str = "symptom") -> Check:
    return check(f"essential-{tier}", status, tier=tier, kind=kind, required=True, reason="not looked at")


def suspect(p: float, severity: str, *, named: bool = False, grounded: bool = True) -> RankedCause:
    values = dict.fromkeys(RankedCause.__struct_fields__, "")
    given = {"id": "c", "title": "C it is", "severity": severity, "probability": p}
    return RankedCause(**{**values, **given, "named": named, "grounded": grounded})  # type: ignore[arg-type]


SEEN = tuple(Tier(name, "seen", (), (), (), ()) for name in TIERS)


def tiers(*states: str) -> tuple[Tier, ...]:
    return tuple(Tier(name, state, (), (), (), ()) for name, state in zip(TIERS, states, strict=True))


CRITICAL_NAMED, WARNING_NAMED, INFO_NAMED = (
    (suspect(0.9, severity, named=True),) for severity in ("critical", "warning", "info")
)
FINE, BROKEN, UNSEEN = slo("clear"), slo("fired"), slo("not-evaluated")
CALM, DEEP = queue("clear"), queue("fired")
PRESENT = "; a condition is present and does not hurt"


def healthy(clear: int, of: int, more: str = "") -> str:
    return f"healthy: {clear} of {of} checks clear, every essential was seen{more}"


TOO_LITTLE = "nothing critical found, but too little was seen to call it healthy"

VERDICTS = [
    # causes, tiers, checks → level, what is said
    # symptoms alone
    ((), SEEN, (FINE, CALM), "healthy", healthy(2, 2)),
    ((), SEEN, (BROKEN, CALM), "critical", "critical, cause unknown"),
    ((), SEEN, (FINE, DEEP), "healthy", healthy(1, 2)),
    ((), SEEN, (FINE, xid("fired")), "critical", "critical, cause unknown"),
    ((suspect(0.5, "critical"),), SEEN, (BROKEN,), "critical", "critical, cause unknown"),
    # named causes
    (WARNING_NAMED, SEEN, (BROKEN,), "critical", "critical, cause found"),
    (CRITICAL_NAMED, SEEN, (FINE,), "critical", "critical: condition found"),
    (CRITICAL_NAMED, SEEN, (FINE, DEEP), "critical", "critical: condition found"),
    (CRITICAL_NAMED, SEEN, (UNSEEN,), "critical", "critical: condition found; user impact not measured"),
    (WARNING_NAMED, SEEN, (UNSEEN,), "warning", "warning: condition found; user impact not measured"),
    (INFO_NAMED, SEEN, (UNSEEN,), "info", "info: condition found; user impact not measured"),
    (WARNING_NAMED, SEEN, (UNSEEN, DEEP), "warning", "warning, cause found"),
    # a warning that does not hurt
    (WARNING_NAMED, SEEN, (FINE,), "healthy", healthy(1, 1, PRESENT)),
    (WARNING_NAMED, SEEN, (FINE, DEEP), "healthy", healthy(1, 2, PRESENT)),
    (INFO_NAMED, SEEN, (slo("not-applicable"),), "healthy", healthy(0, 0, PRESENT)),
    # too little was seen
    ((), SEEN, (UNSEEN,), "inconclusive", TOO_LITTLE),
    ((), tiers("seen", "unseen", "seen"), (FINE,), "inconclusive", TOO_LITTLE),
    ((), tiers("seen", "seen", "partly"), (FINE, essential("application")), "inconclusive", TOO_LITTLE),
    # that the queue was not seen does not make the harm unseen: P99 was
    (WARNING_NAMED, tiers("seen", "seen", "partly"), (FINE, essential("application")), "inconclusive", TOO_LITTLE),
    ((), tiers("not-applicable", "seen", "seen"), (FINE,), "healthy", healthy(1, 1)),
    (WARNING_NAMED, tiers("unseen", "seen", "seen"), (FINE,), "inconclusive", TOO_LITTLE),
    ((), tiers("unseen", "unseen", "unseen"), (BROKEN,), "critical", "critical, cause unknown"),
    # a critical cause that may be there
    ((suspect(0.2, "critical"),), SEEN, (FINE,), "inconclusive", TOO_LITTLE),
    ((suspect(0.5999, "critical"),), SEEN, (FINE,), "inconclusive", TOO_LITTLE),
    ((suspect(0.6, "critical"),), SEEN, (FINE,), "inconclusive", TOO_LITTLE),  # 0.59999 rounded
    ((suspect(0.1999, "critical"),), SEEN, (FINE,), "healthy", healthy(1, 1)),
    ((suspect(0.5, "critical", grounded=False),), SEEN, (FINE,), "healthy", healthy(1, 1)),
    ((suspect(0.5, "warning"),), SEEN, (FINE,), "healthy", healthy(1, 1)),
]  # fmt: skip


@pytest.mark.parametrize(("causes", "walked", "checks", "level", "message"), VERDICTS)
def test_the_verdict(causes: tuple, walked: tuple, checks: tuple, level: str, message: str) -> None:
    found = verdict(causes, walked, checks)
    assert (found.level, found.message) == (level, message)


def test_the_highest_severity_wins() -> None:
    soft = check("errors", "fired", kind="error", tier="", severity="warning")
    assert verdict((), SEEN, (slo("clear"), soft)).level == "warning"
    assert verdict((), SEEN, (slo("clear"), soft, xid("fired"))).level == "critical"
    assert verdict((suspect(0.9, "critical", named=True),), SEEN, (slo("clear"), soft)).level == "critical"
    assert verdict((suspect(0.9, "info", named=True),), SEEN, (slo("not-evaluated"), soft)).level == "warning"


def test_the_reasons_of_an_inconclusive_verdict_name_everything_that_is_in_doubt() -> None:
    checks = (slo("not-evaluated"), essential("framework", kind="specific"), essential("application", "clear"))
    found = verdict((suspect(0.31, "critical"),), tiers("unseen", "partly", "seen"), checks)
    assert found.reasons == (
        "p99: not seen",
        "framework: essential-framework: not looked at",
        "infrastructure: nothing of it was measured",
        "c is possible (31%)",
    )


WALKS = [
    (("fired", "clear"), "seen"),
    (("clear", "clear"), "seen"),
    (("clear", "not-evaluated"), "seen"),
    (("clear", "required not-evaluated"), "partly"),
    (("not-evaluated", "not-evaluated"), "unseen"),
    (("clear", "required fired", "required not-evaluated"), "partly"),
    (("not-evaluated", "required clear"), "seen"),
    (("clear", "required not-applicable"), "seen"),
    (("not-applicable", "clear"), "seen"),
    (("not-applicable", "not-evaluated"), "unseen"),
    (("not-applicable", "not-applicable"), "not-applicable"),
    ((), "unseen"),
]


@pytest.mark.parametrize(("states", "seen"), WALKS)
def test_a_tier_is_seen_where_something_in_it_was_looked_at(states: tuple, seen: str) -> None:
    checks = [check(f"f{index}", state.split()[-1], required="required" in state) for index, state in enumerate(states)]
    elsewhere = check("elsewhere", "not-evaluated", tier="framework")
    (found,) = walk([*checks, elsewhere], ["application"])
    assert found.seen == seen
    listed = {"fired": found.fired, "clear": found.clear, "not-evaluated": found.not_evaluated}
    for state, names in {**listed, "not-applicable": found.not_applicable}.items():
        assert names == tuple(row.id for row in checks if row.status == state)


# --- the whole, over the small world ------------------------------------------------------------------------------

DIAGNOSES = [
    # what differs from all clear → verdict, answer, causes, standing of the first
    ({}, "healthy", "none", (), None),
    ({"backlog": True}, "healthy", "unexplained", (), None),
    ({"slow": True}, "critical", "unexplained", (), None),
    ({"slow": None}, "inconclusive", "none", (), None),
    ({"slow": True, "launches": True, "copies": True}, "critical", "named", ("fw.bound",), "hurting"),
    ({"launches": True, "copies": True}, "healthy", "named", ("fw.bound",), "not-hurting"),
    ({"launches": True, "copies": True, "backlog": True}, "healthy", "named", ("fw.bound",), "not-hurting"),
    ({"launches": True, "copies": True, "slow": None}, "warning", "named", ("fw.bound",), "not-measured"),
    ({"launches": True, "copies": True, "slow": None, "backlog": True}, "warning", "named", ("fw.bound",), "hurting"),
    ({"hot": True, "power": True}, "critical", "named", ("infra.heat",), "not-hurting"),
    ({"xid": True}, "critical", "named", ("infra.dead",), "not-hurting"),
    ({"failing": True, "xid": True}, "critical", "named", ("infra.dead",), "hurting"),
    ({"slow": True, "hot": True, "power": True, "long": True, "lonely": True, "shared": True}, "critical", "named",
     ("infra.heat", "app.alone"), "hurting"),
    ({"slow": True, "off": True}, "critical", "unexplained", (), None),
    ({"long": None, "lonely": None, "shared": True, "backlog": None, "slow": True}, "critical", "one-of",
     ("app.twin", "app.alone"), "hurting"),
]  # fmt: skip


@pytest.mark.parametrize(("states", "level", "kind", "causes", "standing"), DIAGNOSES)
def test_a_diagnosis(rules: RuleSet, states: dict, level: str, kind: str, causes: tuple, standing: str | None) -> None:
    found = told(rules, **states)
    assert (found.verdict.level, found.answer.kind) == (level, kind), found.verdict
    assert set(found.answer.causes) == set(causes)
    if standing:
        assert found.causes[0].impact == standing


def test_elimination_alone_names_nothing(rules: RuleSet) -> None:
    """Everything else is clear, the service is slow, and one cause's own evidence was not looked at."""
    found = told(rules, slow=True, backlog=True, failing=True, xid=None)
    assert found.answer.kind == "unexplained"
    assert found.answer.causes == ()


def test_a_finding_that_rules_out_takes_the_name_away(rules: RuleSet) -> None:
    states = {"slow": True, "lonely": True}
    assert told(rules, **states).answer.kind in ("named", "one-of", "unexplained")
    plain, ruled = told(rules, **states, shared=True), told(rules, **states, shared=True, off=True)
    assert cause_of(plain, "app.alone").probability > 0.6
    after = [row.probability for row in ruled.causes if row.id == "app.alone"]
    assert not after or after[0] < cause_of(plain, "app.alone").probability / 2
    assert all("off" in row.evidence_against for row in ruled.causes if row.id == "app.alone")
    assert plain.answer.ruled_out == ()
    assert ruled.answer.ruled_out == (RuledOut("app.alone", ("lonely", "shared"), ("off",)),)


def test_a_cause_tells_its_evidence_for_against_and_unseen(rules: RuleSet) -> None:
    found = cause_of(told(rules, slow=True, long=True, lonely=False, shared=None), "app.alone")
    assert (found.evidence_for, found.evidence_against, found.unseen) == (("long",), ("lonely",), ("shared",))
    assert found.subjects == ("model/a",)


def test_not_applicable_counts_as_looked_at(rules: RuleSet) -> None:
    seen = evidence({**ALL_CLEAR, "launches": None, "copies": None}, at("server.backend", "cpu"))
    found = diagnosed(rules, seen)
    assert {tier.name: tier.seen for tier in found.tiers}["framework"] == "not-applicable"
    assert found.verdict.level == "healthy"
    blind = diagnosed(rules, evidence({**ALL_CLEAR, "launches": None, "copies": None}))
    assert blind.verdict.level == "inconclusive"


@pytest.mark.parametrize(
    "blind", [("hot", "power", "xid"), ("launches", "copies"), ("long", "lonely", "shared", "off")]
)
def test_healthy_only_where_every_tier_was_seen(rules: RuleSet, blind: tuple[str, ...]) -> None:
    assert told(rules).verdict.level == "healthy"
    found = told(rules, **dict.fromkeys(blind))
    assert found.verdict.level == "inconclusive"
    assert len(found.verdict.reasons) == 1


def test_nothing_seen_at_all_is_inconclusive_and_never_healthy(rules: RuleSet) -> None:
    found = diagnosed(rules, evidence({}))
    assert (found.verdict.level, found.answer.kind) == ("inconclusive", "none")
    assert found.answer.no_known_cause == pytest.approx(0.6, abs=1e-4)
    assert len(found.verdict.reasons) == 4


def test_experimental_causes_offer_no_playbook() -> None:
    one = dataclasses.replace(oracle.cause("c", f=0.9), playbooks=("p",))
    for status, playbooks in (("stable", ("p",)), ("test", ("p",)), ("experimental", ())):
        of = RuleSet((oracle.finding("f"),), (dataclasses.replace(one, status=status),))
        checks = oracle.World(of, {"f": 5.0}).checks
        assert rank(of, Network.of(of, checks), checks)[0].playbooks == playbooks


def test_the_playbook_that_fits_what_was_found_comes_first() -> None:
    one = dataclasses.replace(oracle.cause("c", f=0.5, g=0.9), playbooks=("p", "q"), playbooks_when={"f": "q"})
    of = RuleSet((oracle.finding("f"), oracle.finding("g")), (one,))
    for ln_lambda, playbooks in ((5.0, ("q", "p")), (-5.0, ("p", "q"))):
        checks = oracle.World(of, {"f": ln_lambda, "g": 5.0}).checks
        assert rank(of, Network.of(of, checks), checks)[0].playbooks == playbooks


def test_same_evidence_same_diagnosis(rules: RuleSet) -> None:
    states = {"slow": True, "hot": True, "long": None}
    assert told(rules, **states) == told(rules, **states)
