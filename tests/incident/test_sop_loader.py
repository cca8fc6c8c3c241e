"""SOP files. `sops/*.yaml` here are bad ones, each with what must be said of it: `# expect: LINE: what`."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latdoctor.errors import DefinitionError, OperationError, Problem, UsageError
from latdoctor.incident import events
from latdoctor.incident.sop import loader
from latdoctor.incident.sop.model import ACTIONS, KINDS, allows, needed
from latdoctor.resources import folder
from tests.incident.journal_builders import SOP, incident

BAD = sorted((Path(__file__).parent / "sops").glob("*.yaml"))
_EXPECTED = re.compile(r"^# expect: (?:(\d+): )?(.*)$", re.MULTILINE)
SHIPPED = sorted(folder("sops").glob("*.yaml"))


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_all_errors_of_a_file_are_reported_with_lines(path: Path, tmp_path: Path) -> None:
    shutil.copy(path, tmp_path)
    expected = _EXPECTED.findall(path.read_text())
    with pytest.raises(DefinitionError) as caught:
        loader.read_sops([tmp_path])
    lines = [
        (problem.where.removeprefix(str(tmp_path / path.name)).removeprefix(":"), problem.what)
        for problem in caught.value.problems
    ]
    unsaid = [one for one in expected if not any(one[0] in ("", line) and one[1] in what for line, what in lines)]
    unexpected = [one for one in lines if not any(line in ("", one[0]) and what in one[1] for line, what in expected)]
    assert (unsaid, unexpected) == ([], [])
    assert len(lines) == len(expected)


def test_the_shipped_one_is_the_hour_of_the_field() -> None:
    assert [(stage.id, stage.due / 60) for stage in SOP.stages] == [
        ("confirmed", 1), ("diagnosed", 5), ("located", 15), ("mitigated", 30), ("verified", 60)
    ]  # fmt: skip
    assert {path.stem for path in SHIPPED} == set(loader.shipped())
    assert SOP.permitting("remediate-low") is SOP.stage("diagnosed")
    assert SOP.permitting("restart") is SOP.stage("located")


def test_higher_risk_permission_includes_lower() -> None:
    assert allows(["remediate-medium"], "remediate-low")
    assert not allows(["remediate-medium"], "remediate-high")
    assert not allows(["remediate-high"], "restart")
    assert needed("medium", "restarts") == ("remediate-medium", "restart")
    assert needed("low", "degrades") == ("remediate-low",)


def test_no_sign_accepts_an_unknown_value() -> None:
    told = {value for qualifiers in KINDS.values() for values in qualifiers.values() for value in values}
    assert not told & {events.Confirmation.UNKNOWN, "inconclusive", "incomplete"}
    assert "diagnose" in ACTIONS


def test_an_unknown_name_brings_near_ones() -> None:
    with pytest.raises(UsageError) as caught:
        loader.find(loader.shipped(), "slow-infrence\x1b[31m")
    assert "slow-inference" in caught.value.next_step
    assert "\x1b" not in str(caught.value)


def test_an_incident_follows_the_sop_that_it_was_opened_with(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    own = tmp_path / "own"
    own.mkdir()
    text = SHIPPED[0].read_text().replace("due: 5min", "due: 7min")
    (own / SHIPPED[0].name).write_text(text)
    (mine,) = loader.read_sops([own]).values()
    opened = incident([], {"sop_digest": mine.digest})
    with pytest.raises(OperationError, match="differs from the original"):
        loader.sop_of_incident(tmp_path, opened)
    loader.keep(tmp_path, opened.id, mine)
    kept = loader.sop_of_incident(tmp_path, opened)
    assert (kept.digest, kept.stages[1].due) == (mine.digest, 420.0)
    assert loader.sop_of_incident(tmp_path, incident([])) is SOP
    with pytest.raises(OperationError, match="is missing"):
        loader.sop_of_incident(tmp_path, incident([], {"sop": "another", "sop_digest": "x"}))
    with pytest.raises(UsageError, match="opened without an SOP"):
        loader.sop_of_incident(tmp_path, incident([], {"sop": "", "sop_digest": ""}))
    with pytest.raises(UsageError, match="is not lower-case words"):
        loader.sop_of_incident(tmp_path, incident([], {"sop": "../../x", "sop_digest": ""}))
    with pytest.raises(UsageError, match="is no incident"):
        loader.keep(tmp_path, "../../etc", mine)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_bytes_give_an_sop_or_problems(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    lines = SHIPPED[0].read_text().splitlines()
    whole = st.lists(st.sampled_from(lines) | st.text(max_size=30), max_size=40).map("\n".join)
    raw = data.draw(whole.map(lambda text: text.encode("utf-8", "surrogatepass")) | st.binary(max_size=400))
    path = tmp_path_factory.getbasetemp() / "slow-inference.yaml"
    path.write_bytes(raw)
    found: list[Problem] = []
    assert loader.read_sop(path, found) is not None or found


def test_unread_file_is_reported(tmp_path: Path) -> None:
    shutil.copy(SHIPPED[0], tmp_path / f"{SHIPPED[0].stem}.yml")
    with pytest.raises(DefinitionError) as caught:
        loader.read_sops([tmp_path, tmp_path / "none"])
    assert [problem.what for problem in caught.value.problems] == [
        "is not read: call it <id>.yaml",
        "is not a folder of SOPs",
    ]
