"""`latdoctor sop …`, and how diagnose marks the incident that it belongs to."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from latdoctor.cli import sop_watch
from latdoctor.incident import events
from latdoctor.incident.elapsed import GIVEN_BY_HAND
from latdoctor.incident.open import open_incident
from latdoctor.incident.state import Incident, incidents_in
from latdoctor.incident.status import IncidentStatus, incident_status
from latdoctor.journal.state_dir import JOURNAL, ensure_private
from latdoctor.journal.store import Journal
from latdoctor.remediation.run_history import ChangeRef, RunOpened
from latdoctor.report.handover import refused_line
from latdoctor.sanitize import clean
from tests.cli.running import Outcome, run, write_trusted
from tests.incident.journal_builders import SOP, cause, incident, moment
from tests.incident.scenarios import plan
from tests.journal.builders import files

INCIDENTS = Path(__file__).parents[2] / "fixtures" / "incidents"
RUSH, HEALTHY = str(INCIDENTS / "promo-rush.tar.zst"), str(INCIDENTS / "no-fault.tar.zst")
LONG_AGO = 1_767_225_600.0  # 2026-01-01: before anything that was recorded
HOSTILE = "</script>\x1b[2J\u202e@here [x](http://e.vil) `y` | <!channel>\nnext"


@pytest.fixture(autouse=True)
def state(apart: Path) -> Path:
    return apart / "state"


def said(*arguments: str, code: int = 0) -> Outcome:
    outcome = run(arguments)
    assert outcome.code == code, (arguments, outcome)
    return outcome


def started(*arguments: str) -> str:
    name = json.loads(said("sop", "start", *arguments, "-o", "json").out)["incident"]
    assert isinstance(name, str)
    return name


def began_long_ago(state: Path, title: str = "slow", *targets: str) -> str:
    """An incident that what was recorded falls into; `--began` does not reach back so far."""
    ensure_private(state)
    asked = events.IncidentOpened(title, targets, events.OpenedBy.HAND, SOP.id, SOP.digest, LONG_AGO, GIVEN_BY_HAND)
    return open_incident(Journal.opened(state / JOURNAL), state, asked, SOP).id


def known(state: Path) -> tuple[Incident, ...]:
    return incidents_in(Journal.reading(state / JOURNAL).entries())


def status(*arguments: str) -> dict[str, Any]:
    outcome = run(["sop", "status", *arguments, "-o", "json"])
    document = json.loads(outcome.out)
    assert document["exit_code"] == outcome.code
    assert isinstance(document, dict)
    return document


def stages(document: dict[str, Any]) -> dict[str, str]:
    return {stage["id"]: stage["status"] for stage in document["stages"]}


def test_with_no_incident_open_nothing_is_written(state: Path) -> None:
    outcome = run(["diagnose", RUSH])
    assert (outcome.code, outcome.err) == (3, "")
    assert not state.exists()
    assert "no incident is open" in said("sop", "status", code=2).err
    assert not state.exists()
    started()
    said("sop", "close")
    before = files(state)
    assert run(["diagnose", RUSH]).err == ""
    assert run(["sop", "status"]).out.startswith("CLOSED as resolved after 0:0")
    assert files(state) == before


def test_diagnosis_is_stored_and_meets_stages(state: Path) -> None:
    name = began_long_ago(state)
    outcome = run(["diagnose", RUSH])
    assert f"recorded in {name}" in outcome.err
    assert outcome.out == run(["diagnose", RUSH, "--no-incident"]).out  # stdout is the answer alone
    (entry,) = known(state)[0].of(events.DIAGNOSED)
    told = json.loads(bytes(entry.body))
    assert {cause["id"] for cause in told["causes"] if cause["named"]} == {
        "app.batching.long-alone", "framework.alloc.storm"
    }  # fmt: skip
    assert told["fired"]
    document = json.loads((state / told["document"]).read_text())
    replayed = json.loads(run(["diagnose", str(state / told["bundle"]), "--no-incident", "-o", "json"]).out)
    assert replayed["causes"] == document["causes"]
    found = status()
    assert stages(found)["located"] == "late"  # months ago
    assert found["seen"][0]["looked"]
    assert found["next"]["command"].startswith("latdoctor remediate --playbook promo-rush-sop")
    said("diagnose", RUSH, code=3)
    assert sorted(path.name for path in (state / "incidents" / name / "looks").iterdir()) == [
        "1.json", "1.tar.zst", "2.json", "2.tar.zst"
    ]  # fmt: skip


def test_old_evidence_does_not_diagnose_what_began_now() -> None:
    started()
    said("diagnose", RUSH, code=3)
    assert stages(status())["diagnosed"] == "unmet"


def test_unreadable_source_is_recorded_unless_observed_before(state: Path, tmp_path: Path) -> None:
    name = started("--target", "10.0.0.5:8000")
    nothing = tmp_path / "broken.prom"
    nothing.write_text("{nothing that could be read\n")
    look = ["diagnose", "--metrics", str(nothing), "--incident", name]
    assert f"recorded in {name}" in said(*look, code=1).err
    assert "recorded in" not in said(*look, code=1).err, "once is enough"
    shown = run(["sop", "status", "-v"]).out
    assert "left (alert.confirmed: status unknown (no source could be read: " in re.sub(r"\s+", " ", shown)
    other = began_long_ago(state)
    said("diagnose", RUSH, "--incident", other, code=3)
    assert "recorded in" not in said(*look[:-1], other, code=1).err, "that something was seen stays true"
    (unseen, seen) = known(state)[::-1] if known(state)[0].id == other else known(state)
    assert [len(one.of(events.CONFIRMED)) for one in (unseen, seen)] == [1, 0]


def test_which_incident_is_meant(state: Path) -> None:
    one, other = started("--target", "10.0.0.5:8000"), started("--target", "10.0.0.6:8000")
    assert f"not recorded in {other}, {one}" in run(["diagnose", RUSH]).err
    assert run(["diagnose", RUSH, "--no-incident"]).err == ""
    assert f"recorded in {other}" in run(["diagnose", RUSH, "--incident", other]).err
    assert [len(found.of(events.DIAGNOSED)) for found in known(state)] == [0, 1]
    refused = said("diagnose", RUSH, "--incident", "inc-none", code=2)
    assert (refused.out, "there is no incident 'inc-none'" in refused.err) == ("", True)
    assert "give one of them" in said("diagnose", RUSH, "--incident", one, "--no-incident", code=2).err
    assert "2 incidents are open" in said("sop", "status", code=2).err


def test_of_several_open_ones_each_next_command_names_its_own(state: Path) -> None:
    one = started("--target", "10.0.0.5:8000")
    for command in (["note", "x"], ["note", "--stage", "mitigated"]):
        assert said("sop", *command).out.endswith("Next: latdoctor sop status\n")
    open_incident = said("sop", "start", "--target", "10.0.0.6:8000").out
    other = known(state)[1].id
    assert f"--server 10.0.0.6:8000 --incident {other}, which meets its stages" in open_incident
    assert open_incident.endswith(f"; latdoctor sop status --incident {other}\n")
    for command in (["note", "x"], ["note", "--stage", "mitigated"]):
        assert said("sop", *command, "--incident", one).out.endswith(f"Next: latdoctor sop status --incident {one}\n")
    assert f"Next: latdoctor sop status --incident {one}\n" in run(["diagnose", RUSH, "--incident", one]).err
    for name in (one, other):
        told = json.loads(run(["sop", "status", "--incident", name, "-o", "json"]).out)["next"]["command"]
        assert told.endswith(f" --incident {name}")
    said("sop", "close", "--incident", other)
    assert "--incident" not in status()["next"]["command"]


def test_of_many_open_ones_the_newest_are_listed_with_their_titles() -> None:
    names = [
        started("--title", f"title {number} {'wide ' * 30}", "--target", f"10.0.0.{number}:80") for number in range(6)
    ]
    lines = said("sop", "status", code=2).err.splitlines()
    assert lines[0] == "latdoctor: 6 incidents are open"
    assert [line.split()[0] for line in lines[1:5]] == names[:1:-1]
    assert all(
        f"0:00 h ago  title {number} wide" in line for number, line in zip((5, 4, 3, 2), lines[1:5], strict=True)
    )
    assert max(map(len, lines[1:5])) <= 80
    assert lines[5] == "  next: name one with --incident ID; 2 more: latdoctor incidents list"


def test_where_several_could_be_meant_none_is_marked(state: Path) -> None:
    started("--target", "10.0.0.5:8000")
    journal = Journal.opened(state / JOURNAL)
    for name in ("inc-a", "inc-b"):
        journal.append(name, events.OPENED, events.IncidentOpened("t", (), events.OpenedBy.HAND, SOP.id, SOP.digest))
    outcome = run(["diagnose", RUSH])
    assert outcome.code == 3
    assert "2 incidents fit, and none was updated: choose one with --incident ID (inc-b, inc-a)" in outcome.err
    assert not any(found.of(events.DIAGNOSED) for found in known(state))


@pytest.mark.parametrize("damage", ["journal", "looks", "an entry"])
def test_unwritable_journal_does_not_prevent_an_answer(state: Path, damage: str) -> None:
    name = started()
    if damage == "journal":
        (state / JOURNAL).write_bytes(b"no journal at all")
    elif damage == "looks":
        (state / "incidents" / name / "looks").write_text("in the way")
    else:
        Journal.opened(state / JOURNAL).append(name, events.CLOSED, {"outcome": 7})
    outcome = run(["diagnose", RUSH])
    assert (outcome.code, outcome.out) == (3, run(["diagnose", RUSH, "--no-incident"]).out)
    assert "not recorded in an incident" in outcome.err
    assert "Traceback" not in outcome.err


def test_opened_twice_it_is_the_same_one() -> None:
    name = started("--target", "http://10.0.0.5:8000/metrics")
    again = said("sop", "start", "--target", "10.0.0.5:8000")
    assert f"{name} is open already for this" in again.out


def test_a_configured_target_brings_its_addresses(state: Path) -> None:
    write_trusted("targets: {shop: {server: [http://u:geheim@10.0.0.5:8000/metrics]}}\n")
    started("--target", "shop")
    (found,) = known(state)
    assert found.opened.targets == ("shop", "http://…@10.0.0.5:8000/metrics")
    assert status()["next"]["command"] == "latdoctor diagnose --target shop"


def test_an_alert_opens_one_and_its_repetition_none(state: Path) -> None:
    alert = {"status": "firing", "labels": {"alertname": "SlowP99"}, "startsAt": "2026-11-22T02:47:00Z",
             "annotations": {"summary": "P99 is 3 s"}}  # fmt: skip
    Path("alert.json").write_text(json.dumps({"version": "4", "groupKey": "g", "alerts": [alert]}))
    name = started("--alert", "alert.json")
    assert started("--alert", "alert.json") == name
    (found,) = known(state)
    assert (found.opened.title, found.opened.clock) == ("SlowP99: P99 is 3 s", "alertmanager")
    assert len(found.of(events.ALERTED)) == 1
    assert status()["alerts"] == {"firing": 1}
    Path("alert.json").write_text(
        json.dumps({"version": "4", "groupKey": "h", "alerts": [{**alert, "status": "resolved"}]})
    )
    assert "no alert of it fires" in said("sop", "start", "--alert", "alert.json", code=2).err
    assert "send an Alertmanager webhook" in said("sop", "start", "--alert", __file__, code=2).err
    assert "leave --title" in said("sop", "start", "--alert", "alert.json", "--title", "x", code=2).err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["start", "--began", "2099-01-01T00:00:00Z"], "must not be in the future"),
        (["start", "--began", "soon"], "'soon' is not a time"),
        (["start", "--sop", "slow-infrence"], "did you mean slow-inference"),
        (["start", "--sops", "nowhere"], "is not a folder of SOPs"),
        (["start", "--target", ""], "--target needs a value"),
        (["note", "x"], "no incident is open"),
        (["close"], "no incident is open"),
        (["export"], "no incident is open"),
        (["watch"], "no incident is open"),
    ],
)
def test_usage_errors(state: Path, arguments: list[str], message: str) -> None:
    outcome = said("sop", *arguments, code=2)
    assert message in outcome.err
    assert outcome.out == ""
    assert not (state / JOURNAL).exists()


def test_notes_and_marks_of_people(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = started("--by", "ann")
    assert f"noted in {name}" in said("sop", "note", "the gateway is fine", "--by", "ann").out
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("line one\nline two é\xff".encode("latin-1"))))
    said("sop", "note", "-")
    assert "mitigated is marked as met, by hand" in said("sop", "note", "--stage", "mitigated", "--by", "bob").out
    assert "did you mean mitigated" in said("sop", "note", "x", "--stage", "mitigatd", code=2).err
    assert "the note is empty" in said("sop", "note", "  ", code=2).err
    assert "longer than" in said("sop", "note", "x" * 20_000, code=2).err
    found = status()
    assert stages(found)["mitigated"] == "met"
    assert [note["text"] for note in found["notes"]] == ["the gateway is fine", "line one line two ��"]
    mark = next(stage for stage in found["stages"] if stage["id"] == "mitigated")
    assert (mark["by_hand"], mark["how"]) == (True, "marked by bob")
    said("sop", "close", "--outcome", "false-alarm", "--text", "a test")
    assert "is closed already" in said("sop", "close", "--incident", name, code=2).err
    assert known(state)[0].closed == events.IncidentClosed("false-alarm", "a test", "")


def test_exit_code_prefers_late_over_unknown(state: Path) -> None:
    name = started("--began", "2min")
    assert said("sop", "status", code=3).out.count("overdue") >= 1
    Journal.opened(state / JOURNAL).append(name, events.CONFIRMED, events.AlertConfirmed("unknown", "no page"))
    assert stages(status())["confirmed"] == "unknown"
    said("sop", "status", code=4)
    said("sop", "note", "--stage", "confirmed")
    assert stages(status())["confirmed"] == "late"  # it was met late, and nothing is overdue now
    said("sop", "status", code=0)
    said("sop", "close")
    started("--began", "2min")
    said("sop", "status", code=3)
    said("sop", "close")
    said("sop", "status", code=0)  # nothing is due of what is closed
    said("sop", "start")
    said("sop", "status", code=0)


def test_the_status_is_fit_to_read(state: Path) -> None:
    began_long_ago(state, clean(HOSTILE * 9, 300), "10.0.0.5:8000")
    said("diagnose", RUSH, "--incident", "inc-", code=3)
    for number in range(6):
        said("sop", "note", f"{number} {HOSTILE * 9}", "--by", HOSTILE)
    for arguments in (["status"], ["status", "-v"], ["export", "--handover", "-o", "text"], ["export", "-o", "text"]):
        printed = run(["sop", *arguments]).out
        assert "\x1b" not in printed
        assert "\u202e" not in printed
        assert not re.findall(r"[ \t]+$", printed, re.MULTILINE)
        wide = [line for line in printed.splitlines() if len(line) > 80 and "latdoctor" not in line]
        assert [line for line in wide if " " in line.strip()] == []


def test_a_page_cannot_be_formatted_from_outside() -> None:
    started("--title", HOSTILE)
    said("sop", "note", HOSTILE, "--by", HOSTILE)
    page = said("sop", "export", "--handover").out
    for harm in ("</script>", "@here [", "](http://", "`y`", "<!channel>", "\x1b"):
        assert harm not in page
    assert "\\<\\!channel\\>" in page
    assert page.count("\n### ") >= 5


def test_handover_lists_unknowns() -> None:
    started()
    page = said("sop", "export", "--handover", "-o", "text").out
    for message in (
        "nothing was diagnosed yet",
        "not reported",
        "none by latdoctor",
        "    latdoctor diagnose --server URL\n",
    ):
        assert message in page
    assert json.loads(said("sop", "export", "-o", "json").out)["schema_version"] == "1"


def test_changes_of_a_killed_run_are_listed_at_closing_and_next_incident(state: Path) -> None:
    started("--target", "127.0.0.1:8080")
    journal = Journal.opened(state / JOURNAL)
    journal.append(known(state)[0].id, events.RUN_JOINED, events.RunJoined("r1"))
    journal.append("r1", "run.opened", RunOpened(plan(), plan().digest, 1))
    journal.append("r1", "change.intended", ChangeRef(0, 0))
    closing = said("sop", "close").err
    assert "an unverified change is in place: run r1 (app.batching.token-budget on checkout)" in closing
    assert "app.batching.token-budget unfinished" in said("incidents", "list").out
    started("--title", "next night", "--target", "localhost:8080")
    assert status()["next"]["command"] == "latdoctor recover"
    page = said("sop", "export", "--handover").out
    assert "from before this incident" in page
    assert "none by latdoctor" not in page


def test_critical_last_diagnosis_is_listed_at_closing(state: Path) -> None:
    began_long_ago(state)
    run(["diagnose", RUSH])
    closing = said("sop", "close")
    assert "the last diagnosis, 20" in closing.err
    assert " UTC, was critical: " in closing.err
    assert "is closed: resolved" in closing.out


def test_an_sop_of_ones_own_stays_with_its_incident(state: Path) -> None:
    Path("own").mkdir()
    text = SOP.source.decode().replace("id: slow-inference", "id: ours").replace("due: 1min", "due: 2min")
    Path("own/ours.yaml").write_text(text)
    assert said("sop", "lint").out.endswith("1 SOP is sound. Next: latdoctor sop start\n")
    assert "ours: An inference service" in said("sop", "lint", "--sops", "own").out
    name = started("--sop", "ours", "--sops", "own")
    Path("own/ours.yaml").unlink()
    assert status()["stages"][0]["due"] == 120
    (state / "incidents" / name / "ours.yaml").write_text(text + "# changed\n")
    assert "differs from the original" in said("sop", "watch", code=1).err
    Path("own/ours.yaml").write_text(text.replace("due: 2min", "due: soon"))
    assert "own/ours.yaml:" in said("sop", "lint", "--sops", "own", code=2).err


def test_without_its_sop_the_incident_is_shown_all_the_same(state: Path) -> None:
    Path("own").mkdir()
    Path("own/ours.yaml").write_text(SOP.source.decode().replace("id: slow-inference", "id: ours"))
    name = started("--sop", "ours", "--sops", "own", "--title", "checkout is slow", "--target", "10.0.0.5:8000")
    said("sop", "note", "the gateway is fine", "--by", "ann")
    kept = state / "incidents" / name / "ours.yaml"
    whole = kept.read_text()
    for damage in (kept.unlink, lambda: kept.write_text("id: [")):
        kept.write_text(whole)
        damage()
        outcome = said("sop", "status", "-v", code=1)
        shown = " ".join(outcome.out.split())
        for message in (f"{name}: checkout is slow (open)", "its stages: ", "ann: the gateway is fine",
                     "permitted now: unknown", "latdoctor diagnose --server 10.0.0.5:8000"):  # fmt: skip
            assert message in shown
        assert outcome.err == ""
        document = status()
        assert (document["stages"], document["permitted"], document["sop"]) == ([], [], "ours")
        assert "the SOP 'ours'" in document["unread"]
        for how in (["--handover"], []):
            assert "its stages: " in said("sop", "export", *how, "-o", "text", code=1).out
    said("sop", "note", "still here")
    said("sop", "close")
    assert "lasted" in said("sop", "status", "-v", code=1).out


class Views:
    """What was shown, and Ctrl-C after that many."""

    def __init__(self) -> None:
        self.shown: list[IncidentStatus | str] = []

    def show(self, found: IncidentStatus) -> None:
        self.shown.append(found)

    def failed(self, why: str) -> None:
        self.shown.append(why)


def at(seconds: float, rows: Sequence[dict[str, Any]] = ()) -> IncidentStatus:
    return incident_status(SOP, incident(rows), moment(seconds), Path("nowhere"))


def test_a_view_ends_with_the_incident_or_with_ctrl_c() -> None:
    from latdoctor.errors import OperationError

    def coming(*found: IncidentStatus | BaseException) -> Any:
        left = iter(found)

        def look() -> IncidentStatus:
            one = next(left)
            if isinstance(one, BaseException):
                raise one
            return one

        return look

    closed = [{"kind": events.CLOSED, "at": 50}]
    views = Views()
    assert sop_watch.follow(coming(at(1), at(2, closed), at(3)), views, lambda _: None) == 0
    assert len(views.shown) == 2
    views = Views()
    busy = OperationError("the journal is busy\x1b[2J")
    assert sop_watch.follow(coming(at(1), busy, at(70), KeyboardInterrupt()), views, lambda _: None) == 3
    assert views.shown[1] == "the journal is busy"
    with pytest.raises(OperationError):
        sop_watch.follow(coming(busy), Views(), lambda _: None)


def test_a_pipe_gets_a_line_for_each_change(capsys: pytest.CaptureFixture[str]) -> None:
    lines = sop_watch.LineDisplay(lambda: 1_790_000_000.0)
    named = [{"kind": events.DIAGNOSED, "at": 65, "answer": "named", "causes": [cause()]}]
    for found in (at(1), at(2), at(59), at(61), at(62), at(66, named), at(67, named)):
        lines.show(found)
    out = capsys.readouterr().out.splitlines()
    assert [re.findall(r"confirmed \w+|located \w+", line) for line in out] == [
        ["confirmed unmet", "located unmet"], ["confirmed late", "located unmet"], ["confirmed late", "located met"]
    ]  # fmt: skip
    assert "(0:01 overdue)" in out[1]


def test_watch_journals_a_changed_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    from latdoctor.cli import incident_journaling

    told: list[object] = []
    monkeypatch.setattr(
        incident_journaling, "record_diagnosis", lambda belongs, look, diagnosis: told.append(diagnosis)
    )
    heard: Any = incident_journaling.ChangeRecorder(incident_journaling.IncidentSelector(), str)
    for answer in ("healthy", "healthy", "critical", "critical", "healthy"):
        heard(None, answer)
    assert told == ["healthy", "critical", "healthy"]


def test_without_a_home_there_is_no_incident(monkeypatch: pytest.MonkeyPatch) -> None:
    from latdoctor.errors import UsageError

    def nowhere() -> Path:
        raise UsageError("there is no place to keep the journal")

    monkeypatch.setattr("latdoctor.cli.incident_journaling.state_dir.folder", nowhere)
    outcome = run(["diagnose", RUSH])
    assert (outcome.code, outcome.err) == (3, "")


@pytest.mark.parametrize(("count", "message"), [(1, "1 run was refused"), (2, "2 runs were refused")])
def test_one_is_not_many(count: int, message: str) -> None:
    assert refused_line(count) == f"{message} by a guard"
