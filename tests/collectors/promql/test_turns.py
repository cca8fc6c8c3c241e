"""Where a text or a number turns into another, step by step; drawn as one line of letters for each target."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latdoctor.collectors.promql.label_changes import LabelChange, LabelHistory, label_changes, step_changes


def drawn(*lines: str, job: str = "j") -> dict[str, LabelHistory]:
    """`aab.B`: a letter is a text, a dot nothing, and a capital letter both itself and the one before it."""
    found = {}
    for number, line in enumerate(lines):
        steps: dict[int, set[str]] = {}
        for index, letter in enumerate(line):
            if letter != ".":
                steps[index] = {letter.lower(), line[index - 1].lower()} if letter.isupper() else {letter}
        found[f"server/{number}"] = LabelHistory(job, "", steps)
    return found


def told(*lines: str) -> list[tuple[str, int, str]]:
    return [(turn.subject, turn.index, f"{turn.before}>{turn.text}") for turn in label_changes(drawn(*lines))]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["aaaaaa"], []),
        (["aaabbb"], [("server/0", 3, "a>b")]),
        (["aaaBbb"], [("server/0", 3, "a>b")]),  # both for a while: a rollout on its way
        (["aaabbbbba"], [("server/0", 3, "a>b"), ("server/0", 8, "b>a")]),  # rolled back
        (["aa....aa"], []),  # could not be scraped
        (["aa....bb"], [("server/0", 6, "a>b")]),
        (["aBbB.b"], [("server/0", 1, "a>b")]),
        # New targets beside the old ones.
        (["aaaaaa", "..bbbb"], [("service/j", 2, "a>b")]),
        (["aaaaaa", "..aaaa"], []),
        (["aaa...", "..bbbb", "...bbb"], [("service/j", 2, "a>b")]),
        (["aaa.....", ".....bbb"], [("service/j", 5, "a>b")]),
        (["....bb", ".....b"], []),  # all of it is new: nobody knows what was before
        (["aaabbb", "...bbb"], [("server/0", 3, "a>b"), ("service/j", 3, "a>b")]),
        (["aabbbb", "....cc"], [("server/0", 2, "a>b"), ("service/j", 4, "b>c")]),
        (["aaaaaa", "bbbbbb", "...ccc"], [("service/j", 3, ">c")]),
    ],
)
def test_turns(lines: list[str], expected: list[tuple[str, int, str]]) -> None:
    assert told(*lines) == expected


def test_jobs_and_models_are_kept_apart() -> None:
    found = {
        "server/a": LabelHistory("x", "", {0: {"1"}, 9: {"1"}}),
        "server/b": LabelHistory("y", "", {5: {"2"}, 9: {"2"}}),
        "model/m@c": LabelHistory("x", "model/m", {5: {"3"}, 9: {"3"}}),
    }
    assert list(label_changes(found)) == []
    found["model/m@d"] = LabelHistory("x", "model/m", {0: {"4"}})
    assert list(label_changes(found)) == [LabelChange("service/x/model/m", 5, "4", "3")]


@pytest.mark.parametrize(
    ("drawing", "expected"),
    [
        ("333333", []),
        ("333222", [(3, 3.0, 2.0)]),
        ("332333", []),  # one scrape that failed
        ("3322333", []),
        ("33322233", [(3, 3.0, 2.0), (6, 2.0, 3.0)]),
        ("333222332", [(3, 3.0, 2.0)]),
        ("3332", []),  # it may be a scrape that failed
        ("33322", [(3, 3.0, 2.0)]),
        ("0", []),
        ("", []),
        ("333.222", [(4, 3.0, 2.0)]),
    ],
)
def test_levels(drawing: str, expected: list[tuple[int, float, float]]) -> None:
    assert list(step_changes({index: float(x) for index, x in enumerate(drawing) if x != "."})) == expected


@given(st.lists(st.text("abc.", min_size=1, max_size=20).filter(lambda line: line.strip(".") != ""), max_size=5))
def test_what_the_first_step_shows_is_no_turn_and_each_turn_shows_what_it_says(lines: list[str]) -> None:
    first = min((len(line) - len(line.lstrip(".")) for line in lines), default=0)
    for subject, index, change in told(*lines):
        before, _, text = change.partition(">")
        assert index > first
        assert before != text
        members = lines if subject == "service/j" else [lines[int(subject.removeprefix("server/"))]]
        assert any(line[index : index + 1] == text for line in members)
