"""How an incident is begun and ended by hand: of which alert, of what, since when, and what is said of it."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latdoctor.cli.time_args import began
from latdoctor.errors import UsageError
from latdoctor.incident import events
from latdoctor.incident.alert_intake import Intake
from latdoctor.incident.alertmanager import parse
from latdoctor.incident.state import Incident, decode_body, incidents_in
from latdoctor.journal.state_dir import JOURNAL
from latdoctor.journal.store import Journal
from tests.cli.pages import triton
from tests.cli.running import Outcome, run, write_trusted
from tests.http.stub_server import answering, serving
from tests.incident.alert_builders import alert, notification

NOON = 1_795_348_800.0  # 2026-11-22 12:00:00 UTC, 13:00 in the zone of these tests
HOUR = 3600.0


@pytest.fixture(autouse=True)
def state(apart: Path) -> Path:
    return apart / "state"


@pytest.fixture
def _zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "CET-1")
        time.tzset()
        yield
    time.tzset()


def said(*arguments: str, code: int = 0) -> Outcome:
    outcome = run(arguments)
    assert outcome.code == code, (arguments, outcome)
    return outcome


def started(*arguments: str) -> tuple[str, bool]:
    told = json.loads(said("sop", "start", *arguments, "-o", "json").out)
    return told["incident"], told["new"]


def known(state: Path) -> tuple[Incident, ...]:
    return incidents_in(Journal.reading(state / JOURNAL).entries())


def fires(*numbers: int, status: str = "firing") -> list[str]:
    Path("alert.json").write_bytes(notification([alert(number, status, name=f"Slow{number}") for number in numbers]))
    return ["--alert", "alert.json"]


def test_a_firing_whose_incident_was_closed_opens_another(state: Path) -> None:
    first, _ = started(*fires(1))
    assert started(*fires(1)) == (first, False)
    said("sop", "close")
    outcome = said("sop", "start", *fires(1))
    second = known(state)[-1]
    assert second.open
    assert second.still_firing == ("Slow1",)
    assert outcome.out.startswith(f"{second.id} is open, by the SOP")
    assert f"{first}, was closed (resolved)" in outcome.err
    assert started(*fires(1)) == (second.id, False)
    # What the Alertmanager repeats by itself goes to the one that is open, and opens none once that is closed.
    made = Intake(Journal.opened(state / JOURNAL), state)
    assert made.take(parse(Path("alert.json").read_bytes())).incident == second.id
    said("sop", "close")
    assert not made.take(parse(Path("alert.json").read_bytes())).opened
    assert "no alert of it fires" in said("sop", "start", *fires(1, status="resolved"), code=2).err
    assert [one.open for one in known(state)] == [False, False]


def test_alerts_that_still_fire_are_named_when_it_is_closed() -> None:
    started(*fires(1, 2, 3))
    started(*fires(2, status="resolved"))
    outcome = said("sop", "close")
    assert "still firing: Slow1, Slow3. " in outcome.err
    assert "is closed: resolved" in outcome.out
    started("--title", "by hand")
    assert said("sop", "close").err == ""


def test_bare_host_is_reported(state: Path) -> None:
    write_trusted("targets: {checkout-bot: {server: [http://10.0.0.5:8000/metrics]}}\n")
    outcome = said("sop", "start", "--target", "checkout-bt")
    assert outcome.err.count("\n") == 1
    assert "'checkout-bt' is neither a configured target nor an address" in outcome.err
    assert "did you mean checkout-bot?" in outcome.err
    assert "Next: latdoctor diagnose --server URL, which" in outcome.out  # no target of that name could be looked at
    assert known(state)[-1].opened.hosts == ("checkout-bt",)
    for target in ("checkout-bot", "http://10.0.0.6:8000/metrics", "10.0.0.7:8000"):
        outcome = said("sop", "start", "--target", target)
        assert outcome.err == ""
        option = "--target" if target == "checkout-bot" else "--server"
        assert f"Next: latdoctor diagnose {option} {target} --incident inc-" in outcome.out


@pytest.mark.parametrize("target", [[], ["--target", "localhost"]], ids=["no target", "a host"])
def test_next_command_names_the_last_servers(target: list[str]) -> None:
    name, _ = started(*target)
    assert "--server URL" in said("sop", "status").out
    with serving(answering(200, triton(81_000))) as server:
        page = f"http://127.0.0.1:{server.port}/metrics"
        looked = run(["diagnose", "--server", page, "--window", "10ms"])
        assert f"recorded in {name}" in looked.err
    assert f" Next    latdoctor diagnose --server {page}\n" in run(["sop", "status"]).out


@pytest.mark.usefixtures("_zone")
@pytest.mark.parametrize(
    ("text", "now", "ago", "message"),
    [
        ("12:48", NOON, 720, "It began 2026-11-22 12:48:00 CET (local time), 12:00 ago."),
        ("13:00", NOON, 0, "It began 2026-11-22 13:00:00 CET (local time), 0:00 ago."),
        ("10min", NOON, 600, "It began 2026-11-22 12:50:00 CET (local time), 10:00 ago."),
        ("2026-11-22T11:30:00Z", NOON, 1800, "It began 2026-11-22 12:30:00 CET (local time), 30:00 ago."),
        ("2026-11-22T12:30", NOON, 1800, "It began 2026-11-22 12:30:00 CET (local time), 30:00 ago."),
        # Ten past midnight, and what is meant by ten to.
        ("23:50", NOON + 11 * HOUR + 600, 1200, "It began 2026-11-22 23:50:00 CET (local time), yesterday, 20:00 ago."),
        ("168h", NOON, 168 * HOUR, "It began 2026-11-15 13:00:00 CET (local time), 7 d 0 h ago."),
    ],
)
def test_interpreted_start_time_is_printed(text: str, now: float, ago: float, message: str) -> None:
    found = began(text, now)
    assert (now - found.at, found.message) == (ago, message)


@pytest.mark.usefixtures("_zone")
@pytest.mark.parametrize(
    ("text", "message", "step"),
    [
        ("14:00", "14:00:00 CET is in the future today, and that of yesterday was 23:00:00 ago",
         "such as --began 2026-11-21T14:00:00"),
        ("2026-11-22T14:00", "must not be in the future", "a past time"),
        ("169h", "'169h' is more than 7 days ago: the stages are due within minutes", "to count from now"),
        ("2025-11-22T12:48", "more than 7 days ago", "latdoctor diagnose BUNDLE"),
        ("0001-01-01T00:00:00+00:00", "more than 7 days ago", "to count from now"),
        ("25:00", "'25:00' is not a time", "--began 2h"),
    ],
)  # fmt: skip
def test_a_beginning_that_cannot_be_is_refused(text: str, message: str, step: str) -> None:
    with pytest.raises(UsageError) as caught:
        began(text, NOON)
    assert message in caught.value.what
    assert step in caught.value.next_step
    assert caught.value.where == "--began"


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=30) | st.text("0123456789:.-+eTZinfanshmd ", max_size=24), st.floats(NOON, NOON + 24 * HOUR))
def test_any_text_is_a_beginning_within_a_week_or_refused(text: str, now: float) -> None:
    try:
        found = began(text, now)
    except UsageError:
        return
    assert 0 <= now - found.at <= 168 * HOUR
    assert found.message.startswith("It began 2026-")


def test_confirmation_has_the_start_time(state: Path) -> None:
    outcome = said("sop", "start", "--began", "10min", "--target", "10.0.0.5:8000")
    assert re.search(r"^It began \d{4}-\d\d-\d\d \d\d:\d\d:\d\d \S+ \(local time\).* 10:0\d ago\.$", outcome.out, re.M)
    assert known(state)[0].opened.clock == "given by hand"
    assert "by the clock of given" not in said("timeline").out
    again = said("sop", "start", "--began", "20min", "--target", "10.0.0.5:8000")
    assert "; its start time stays unchanged." in again.out
    assert len(known(state)[0].of(events.OPENED)) == 1


def test_second_title_becomes_a_note(state: Path) -> None:
    name, _ = started("--title", "checkout is slow")
    for _ in range(2):
        outcome = said("sop", "start", "--title", "payments fail", "--by", "bob")
        assert f"{name} is open already for this: 'checkout is slow'." in outcome.out
        assert "latdoctor sop start --title TEXT --target NAME" in outcome.out
    said("sop", "start", "--title", "checkout is slow")
    said("sop", "start")
    notes = [decode_body(entry, events.NoteAdded) for entry in known(state)[0].of(events.NOTED)]
    assert notes == [events.NoteAdded("payments fail", "bob")]  # once, and never what is its title already
    outcome = said("sop", "start", "--title", "a third", "-o", "json")
    assert json.loads(outcome.out) == {"schema_version": "1", "incident": name, "new": False}
    assert outcome.err == f"your title is stored as a note of {name}\n"
    other, new = started("--title", "payments fail", "--target", "10.0.0.5:8000")
    assert new
    again = said("sop", "start", "--title", "cards", "--target", "10.0.0.5:8000")
    assert f"needs this one closed: latdoctor sop close --incident {other}" in again.out
    assert [decode_body(entry, events.NoteAdded).text for entry in known(state)[1].of(events.NOTED)] == ["cards"]


TYPO = "targets: {bot: {server: [http://10.0.0.5:8000/metrics]}}\nnotify: {a: {kind: sms}}\n"


@pytest.mark.parametrize("text", [TYPO, TYPO.replace("notify", "notfy"), "notify: {a: {kind: sms}}\n", "notify: [\n"])
def test_invalid_receivers_do_not_prevent_opening(text: str, state: Path) -> None:
    write_trusted(text)
    outcome = said("sop", "start", "--target", "bot")
    assert "no receiver is notified: " in outcome.err
    assert "latdoctor.yaml:" in outcome.err
    assert "no receiver is notified: " in said("sop", "start", *fires(1)).err
    assert [one.opened.source for one in known(state)] == [events.OpenedBy.HAND, events.OpenedBy.ALERT]
    assert ("http://10.0.0.5:8000/metrics" in known(state)[0].opened.targets) is ("targets" in text)


@pytest.mark.parametrize(
    ("starts", "message"),
    [
        ("9999-12-31T00:00:00Z", "the reported start, 9999-12-31 00:00:00 UTC, is not plausible"),
        ("1900-01-01T00:00:00Z", "the reported start, 1900-01-01 00:00:00 UTC, is not plausible"),
        ("9999-12-31T23:59:59-23:59", "the reported start, an impossible time, is not plausible"),
        ("0001-01-01T00:00:00Z", "the start of the trouble was not reported"),
    ],
)
def test_impossible_alert_start_is_reported(starts: str, message: str) -> None:
    Path("alert.json").write_bytes(notification([alert(1, starts=starts)]))
    started("--alert", "alert.json")
    assert message in " ".join(said("sop", "status", "-v").out.split())


def test_a_beginning_that_cannot_be_hides_none_that_can(state: Path) -> None:
    Path("alert.json").write_bytes(notification([alert(1, starts="1900-01-01T00:00:00Z"), alert(2)]))
    started("--alert", "alert.json")
    assert known(state)[0].opened.began == 1_795_315_750.0


def test_alert_truncation_is_printed_and_journaled() -> None:
    one = alert(1)
    one["labels"] |= {f"a{number}": "x" for number in range(70)} | {"severity": "critical"}
    one["annotations"]["description"] = "y" * 3000
    Path("alert.json").write_bytes(notification([one, alert(2, name="Other")]))
    outcome = said("sop", "start", "--alert", "alert.json")
    message = "cut to fit: LatencyHigh (9 labels left out, 1 annotation shortened)"
    assert outcome.err.endswith(f": {message}\n")
    assert f"alert: 2 firing: LatencyHigh, Other; {message}" in " ".join(said("timeline").out.split())
    assert said("sop", "start", "--alert", "alert.json").err == ""  # what is known already is not told again
