"""Playbook files. `playbooks/*.yaml` here are bad ones, each with the expected problems: `# expect: LINE: what`."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latdoctor.errors import DefinitionError, Problem, UsageError
from latdoctor.remediation.playbook import Settle
from latdoctor.remediation.playbook_library import read_library, shipped, shipped_playbook
from latdoctor.remediation.playbook_loader import read_playbook
from latdoctor.resources import folder
from tests.remediation.sample_playbooks import LANES, SCHEDULER, WHOLE, library

BAD = sorted((Path(__file__).parent / "playbooks").glob("*.yaml"))
_EXPECTED = re.compile(r"^# expect: (?:(\d+): )?(.*)$", re.MULTILINE)


def problems(*folders: Path) -> list[Problem]:
    with pytest.raises(DefinitionError) as caught:
        read_library(folders)
    return list(caught.value.problems)


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_all_problems_of_a_file_are_reported_with_lines(path: Path, tmp_path: Path) -> None:
    shutil.copy(path, tmp_path)
    expected = _EXPECTED.findall(path.read_text())
    # Beside the shipped ones, so that stages may name those.
    found = problems(folder("playbooks"), tmp_path)
    lines = [
        (problem.where.removeprefix(str(tmp_path / path.name)).removeprefix(":"), problem.what) for problem in found
    ]
    unsaid = [one for one in expected if not any(one[0] in ("", line) and one[1] in what for line, what in lines)]
    unexpected = [one for one in lines if not any(line in ("", one[0]) and what in one[1] for line, what in expected)]
    assert (unsaid, unexpected) == ([], [])
    assert len(lines) == len(expected)


def test_unread_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "test.mine.yml").write_text(SCHEDULER)
    assert [one.what for one in problems(tmp_path)] == ["is not read: call it <id>.yaml"]


def test_there_are_bad_files() -> None:
    assert len(BAD) > 10


def test_a_file_becomes_a_playbook(tmp_path: Path) -> None:
    known = library(tmp_path, SCHEDULER)
    playbook = known.find("test.scheduler")
    assert playbook.where.endswith("test.scheduler.yaml:2")
    assert (playbook.guards.cooldown, playbook.guards.attempts.per, playbook.before.window) == (600.0, 86_400.0, 10.0)
    assert playbook.verify.mechanism == ("batch-sizes-bimodal",)
    assert playbook.settle.at_most == 20.0
    assert [(step.id, step.arguments) for step in playbook.steps] == [("scheduler", {"scheduler": "token-budget"})]
    assert not playbook.stages


def test_defaults_of_a_playbook(tmp_path: Path) -> None:
    bare = "\n".join(line for line in SCHEDULER.splitlines() if not line.startswith(("guards", "before", "settle")))
    playbook = library(tmp_path, bare).find("test.scheduler")
    assert (playbook.guards.max_targets, playbook.guards.attempts.count) == (1, 2)
    assert playbook.settle == Settle()
    assert playbook.treats == "cause"


def test_unknown_id_suggests_similar_ones() -> None:
    with pytest.raises(UsageError, match="unknown playbook") as caught:
        shipped().find("app.batching.token-bugdet")
    assert "app.batching.token-budget" in caught.value.next_step
    with pytest.raises(UsageError) as caught:
        shipped().find("zzz\x1b[31m")
    assert "\x1b" not in str(caught.value)


def test_the_digest_is_of_the_bytes_and_of_the_stages(tmp_path: Path) -> None:
    def digests(name: str, *texts: str) -> dict[str, str]:
        (tmp_path / name).mkdir()
        return {one.id: one.digest for one in library(tmp_path / name, *texts).playbooks}

    first = digests("first", SCHEDULER, LANES, WHOLE)
    same = digests("same", SCHEDULER, LANES, WHOLE)
    remark = digests("remark", SCHEDULER + "# a remark\n", LANES, WHOLE)
    assert same == first
    assert {name for name in first if remark[name] != first[name]} == {"test.scheduler", "test.whole"}


def test_an_id_is_used_once(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "test.scheduler.yaml").write_text(SCHEDULER)
    assert ["used twice" in problem.what for problem in problems(tmp_path / "one", tmp_path / "two")] == [True]
    assert "is not a folder of playbooks" in problems(tmp_path / "three")[0].what


def test_lowest_risk_playbook_is_first() -> None:
    found = shipped().addressing("app.load.retry-storm")
    assert [one.id for one in found] == ["app.governance.retry-budget", "app.governance.queue-bound"]
    assert shipped().addressing("no.such-cause") == ()


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_bytes_give_a_playbook_or_problems(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    lines = [*SCHEDULER.splitlines(), *WHOLE.splitlines()]
    whole = st.lists(st.sampled_from(lines) | st.text(max_size=30), max_size=40).map("\n".join)
    raw = data.draw(whole.map(lambda text: text.encode("utf-8", "surrogatepass")) | st.binary(max_size=400))
    path = tmp_path_factory.getbasetemp() / "test.scheduler.yaml"
    path.write_bytes(raw)
    found: list[Problem] = []
    playbook = read_playbook(path, found)
    assert playbook is not None or found
    assert all(count < 20 for count in Counter(found).values())


def test_a_shipped_playbook_read_alone_is_that_of_the_library() -> None:
    assert [shipped_playbook(playbook.id) for playbook in shipped().playbooks] == list(shipped().playbooks)
    assert shipped_playbook("no-such-playbook") is None
    assert shipped_playbook("../playbooks/app.batching.token-budget") is None
