"""Evidence reduced to one of several siblings."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from latdoctor.evidence.model import Event, Evidence, Gap, Origin, Reading, Subject
from latdoctor.evidence.subject_branch import branch, subjects

PARENTS = {"node/a": None, "server/1": "node/a", "server/2": "node/a", "model/m@1": "server/1", "model/m@2": "server/2"}
ORIGIN = Origin("page")


def world() -> Evidence:
    return Evidence(
        subjects=tuple(Subject(name, parent) for name, parent in PARENTS.items()),
        readings=tuple(Reading("queue.depth", name, 1.0, ORIGIN) for name in PARENTS),
        events=(Event("log.xid", "server/2", ORIGIN),),
        looked=(("log.xid", "server/1"), ("log.xid", "server/2")),
        gaps=(Gap("x", "all"), Gap("x", "one", subject="model/m@1"), Gap("x", "other", subject="model/m@2")),
    )


def test_a_branch_holds_parts_and_what_it_runs_on_and_no_sibling() -> None:
    found = branch(world(), "server/1")
    assert {one.subject for one in found.readings} == {"node/a", "server/1", "model/m@1"}
    assert found.events == ()
    assert found.looked == (("log.xid", "server/1"),)
    assert [gap.reason for gap in found.gaps] == ["all", "one"]
    assert {one.id for one in found.subjects} == {"node/a", "server/1", "model/m@1"}


def test_every_subject_is_known() -> None:
    assert subjects(world()) == sorted(PARENTS)
    assert subjects(Evidence()) == []


@given(st.dictionaries(st.sampled_from("abcdef"), st.sampled_from("abcdef")), st.sampled_from("abcdef"))
def test_any_declaration_of_parents_ends(parents: dict[str, str], subject: str) -> None:
    evidence = Evidence(
        subjects=tuple(Subject(name, parent) for name, parent in parents.items()),
        readings=tuple(Reading("queue.depth", name, 1.0, ORIGIN) for name in "abcdef"),
    )
    once = branch(evidence, subject)
    assert subject in {one.subject for one in once.readings}
    assert {one.subject for one in branch(once, subject).readings} == {one.subject for one in once.readings}
