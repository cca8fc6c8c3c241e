"""`latdoctor timeline`, `latdoctor incidents`, and the line beside a new diagnosis: all of it read from the journal."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from latdoctor.incident import events
from latdoctor.journal.state_dir import JOURNAL
from latdoctor.journal.store import Journal
from latdoctor.report.machine_formats import parse_timeline
from tests.cli.running import run
from tests.incident.scenarios import BOOK, CAUSE, ID, RUN, Log, cause, diagnosed, promo_rush
from tests.journal.builders import files

BUNDLE = Path(__file__).parents[2] / "fixtures" / "incidents" / "promo-rush.tar.zst"
FORMATS = ("text", "markdown", "json", "cloudevents")


def journaled(folder: Path, *logs: Log) -> Path:
    """A journal with the entries of `logs`, one after the other, at their own times."""
    journal = Journal.opened(folder / "state" / JOURNAL)
    for log in logs:
        for entry in log.entries:
            body = json.loads(bytes(entry.body))
            Journal(journal.path, True, lambda entry=entry: entry).append(entry.run, entry.kind, body)  # type: ignore[misc]
    return folder / "state"


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LATDOCTOR_STATE", str(tmp_path / "state"))
    return journaled(tmp_path, promo_rush())


@pytest.mark.parametrize("form", FORMATS)
def test_the_timeline_of_the_last_incident_in_each_form_reads_only(state: Path, form: str) -> None:
    before = files(state)
    outcome = run(["timeline", "--format", form])
    assert outcome.code == 0
    assert outcome.err.startswith("the stages of its SOP are unknown: ")
    assert ID in outcome.out.replace("\\", "")
    assert files(state) == before
    assert run(["timeline", "--format", form, "--incident", ID]).out == outcome.out
    assert run(["timeline", "--format", form]).out == outcome.out


def test_a_run_has_one_of_its_own(state: Path) -> None:
    assert state
    outcome = run(["timeline", "--run", RUN, "--format", "json"])
    assert outcome.code == 0
    page = parse_timeline(outcome.out.encode())
    assert (page.subject, page.id, page.outcome) == ("run", RUN, "verified")
    assert {moment.run for moment in page.moments} == {RUN}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--incident", "inc-none"], "there is no incident 'inc-none'"),
        (["--run", "none"], "there is no run 'none'"),
        (["--run", RUN, "--incident", ID], "are exclusive"),
        (["--run", ID], "there is no run"),
    ],
)
def test_what_is_not_there_is_a_mistake_of_usage(state: Path, arguments: list[str], message: str) -> None:
    assert state
    outcome = run(["timeline", *arguments])
    assert (outcome.code, outcome.out) == (2, "")
    assert message in outcome.err
    assert "next:" in outcome.err


def test_without_a_journal_there_is_no_incident(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LATDOCTOR_STATE", str(tmp_path / "none"))
    assert run(["timeline"]).code == 2
    assert run(["incidents", "list"]).out == "no incident yet. Next: latdoctor sop start\n"
    assert not (tmp_path / "none").exists()


def test_a_file_that_is_there_is_not_written_over(state: Path, tmp_path: Path) -> None:
    assert state
    path = tmp_path / "post-mortem.md"
    assert run(["timeline", "--format", "markdown", "--to", str(path)]).code == 0
    path.write_text(path.read_text().replace("TODO(human)", "filled in"))
    again = run(["timeline", "--format", "markdown", "--to", str(path)])
    assert again.code == 2
    assert "already exists" in again.err
    assert "name a new file" in again.err
    assert "TODO" not in path.read_text()


def test_changed_journal_is_not_sent(state: Path) -> None:
    with closing(sqlite3.connect(state / JOURNAL, isolation_level=None)) as connection:
        connection.execute("DROP TRIGGER entries_stay")
    outcome = run(["timeline"])
    assert (outcome.code, outcome.out) == (1, "")


def test_an_entry_of_another_version_is_an_error_with_a_next_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LATDOCTOR_STATE", str(tmp_path / "state"))
    log = Log()
    log.add(0, events.OPENED, {"name": "of tomorrow"})
    journaled(tmp_path, log)
    outcome = run(["timeline"])
    assert outcome.code == 1
    assert "not as this version writes it" in outcome.err


def second() -> Log:
    log = Log("inc-20261123-0100-aaaa")
    log.add(86_400, events.OPENED, events.IncidentOpened("again", ("checkout",), events.OpenedBy.HAND, "", ""))
    log.add(86_460, events.DIAGNOSED, diagnosed(cause()))
    return log


def test_incidents_are_listed_with_what_worked_and_the_means(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LATDOCTOR_STATE", str(tmp_path / "state"))
    journaled(tmp_path, promo_rush(), second())
    outcome = run(["incidents", "list"])
    assert outcome.code == 0
    lines = outcome.out.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0] == "2 incidents, 1 open"
    assert lines[2].split()[2:] == ["OPEN", "again"]
    assert f"{BOOK} verified" in " ".join(outcome.out.split())
    assert "MTTR 2.5 min (1)" in " ".join(lines)
    document = json.loads(run(["incidents", "list", "-o", "json"]).out)
    assert [one["id"] for one in document["incidents"]] == ["inc-20261123-0100-aaaa", ID]
    assert document["incidents"][1]["remedies"] == [{"playbook": BOOK, "outcome": "verified", "run": RUN}]
    assert {one["id"]: one["of"] for one in document["means"]} == {"MTTD": 2, "MTTA": 2, "MTTM": 1, "MTTR": 1}


def test_an_incident_is_shown_with_those_that_were_like_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LATDOCTOR_STATE", str(tmp_path / "state"))
    journaled(tmp_path, promo_rush(), second())
    outcome = run(["incidents", "show", "inc-20261123"])
    assert outcome.code == 0
    text = " ".join(outcome.out.split())
    for part in (
        "OPEN worst verdict: critical",
        "Cause Long requests run alone",
        f"{ID}, same cause;",
        f"{BOOK} verified",
    ):
        assert part in text
    assert CAUSE not in text, "no internal id"
    lines = outcome.out.splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    everything = " ".join(run(["incidents", "show", "-v", "inc-20261123"]).out.split())
    for part in ("MTTR unknown: it is still open", f"{ID}, same cause ({CAUSE})"):
        assert part in everything
    alike = run(["incidents", "similar"])
    assert f"100 % alike: 2026-11-22 {ID}, same cause" in " ".join(alike.out.split())
    document = json.loads(run(["incidents", "similar", "--incident", "inc-20261123", "-o", "json"]).out)
    assert [(one["id"], one["same_causes"], one["likeness"]) for one in document["similar"]] == [(ID, [CAUSE], 1.0)]


def diagnosis(tmp_path: Path) -> Path:
    path = tmp_path / "diagnosis.json"
    path.write_text(run(["diagnose", str(BUNDLE), "-o", "json"]).out)
    return path


def like_the_bundle(tmp_path: Path) -> Log:
    """An incident that has ended, with the cause that the saved bundle shows, and a hostile id of a playbook."""
    found = json.loads(diagnosis(tmp_path).read_text())
    log = Log("inc-20261122-0650-4f2a")
    log.add(0, events.OPENED, events.IncidentOpened("before", (), events.OpenedBy.HAND, "", ""))
    named = [cause(one["id"]) for one in found["causes"] if one["named"]]
    log.add(1, events.DIAGNOSED, diagnosed(*named, fired=()))
    log.add(2, events.CLOSED, events.IncidentClosed("resolved"))
    return log


def test_new_diagnosis_names_a_similar_incident(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LATDOCTOR_STATE", str(tmp_path / "state"))
    plain = {form: run(["diagnose", str(BUNDLE), "-o", form]) for form in ("text", "markdown", "json")}
    assert not any("seen before" in one.out + one.err for one in plain.values())
    state = journaled(tmp_path, like_the_bundle(tmp_path))
    before = files(state)
    line = f"similar incident: 2026-11-22 {ID} same cause; no playbook was run"
    text = run(["diagnose", str(BUNDLE)])
    assert text.code == plain["text"].code
    assert text.out.startswith(plain["text"].out)
    assert line in " ".join(text.out.split())
    assert line in run(["diagnose", str(BUNDLE), "-o", "markdown"]).out
    assert "seen before" not in run(["diagnose", str(BUNDLE), "-o", "json"]).out
    assert f"{ID}, same cause" in " ".join(run(["incidents", "similar", str(tmp_path / "diagnosis.json")]).out.split())
    assert files(state) == before


def test_one_that_is_open_was_not_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LATDOCTOR_STATE", str(tmp_path / "state"))
    log = like_the_bundle(tmp_path)
    log.entries.pop()
    journaled(tmp_path, log)
    assert "seen before" not in run(["diagnose", str(BUNDLE)]).out


@pytest.mark.parametrize("damage", ["no journal", "other version", "a folder", "not readable"])
def test_a_journal_that_cannot_be_read_disturbs_no_diagnosis(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    plain = run(["diagnose", str(BUNDLE)])
    monkeypatch.setenv("LATDOCTOR_STATE", str(tmp_path / "state"))
    path = tmp_path / "state" / JOURNAL
    path.parent.mkdir(mode=0o700)
    if damage == "no journal":
        path.write_bytes(b"something else" * 100)
    elif damage == "other version":
        log = Log()
        log.add(0, events.OPENED, {"name": "of tomorrow"})
        journaled(tmp_path, log)
    elif damage == "a folder":
        path.mkdir()
    else:
        monkeypatch.setenv("LATDOCTOR_STATE", "/proc/self/mem/none")
    outcome = run(["diagnose", str(BUNDLE)])
    assert (outcome.code, outcome.out) == (plain.code, plain.out)
    if damage != "not readable":
        assert "skipped the search for similar incidents" in outcome.err


@pytest.mark.parametrize("arguments", [["x.json"], ["--incident", "inc-none"], ["x.json", "--incident", ID]])
def test_similar_to_nothing_is_a_mistake_of_usage(state: Path, tmp_path: Path, arguments: list[str]) -> None:
    assert state
    (tmp_path / "x.json").write_text("{}")
    outcome = run(["incidents", "similar", *(str(tmp_path / one) if one == "x.json" else one for one in arguments)])
    assert outcome.code == 2
    assert outcome.out == ""
