"""A turn of the listener's looks: what it journals, of which time, and what it leaves out."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path

import pytest

from latdoctor.cli.collect_and_diagnose import rule_set
from latdoctor.cli.listen import ServiceMonitor
from latdoctor.cli.options import SourceOptions
from latdoctor.collectors.runner import SystemClock
from latdoctor.incident import events
from latdoctor.incident.alert_intake import IncidentTemplate, Intake
from latdoctor.incident.state import Incident, decode_body, incidents_in
from latdoctor.journal.store import Journal
from tests.collectors.promql.history import END, HOUR, openmetrics
from tests.collectors.promql.real import prometheus
from tests.incident.alert_builders import alert, alerted
from tests.incident.listen_process import Page, paged


@pytest.fixture(autouse=True)
def _a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with prometheus(tmp_path_factory.mktemp("prometheus"), openmetrics()) as url:
        yield url


class Desk:
    """An open incident, and looks at `given`."""

    def __init__(self, folder: Path, given: SourceOptions, *, targets: tuple[str, ...] = ()) -> None:
        place = folder / "state"
        self.journal = Journal.opened(place / "journal.sqlite")
        self.intake = Intake(self.journal, place, IncidentTemplate(targets=targets))
        self.intake.take(alerted(alert(1)))
        self.said: list[str] = []
        self.attendance = ServiceMonitor(given, rule_set(()), self.intake, 1.0, SystemClock(), self.said.append)

    @property
    def incident(self) -> Incident:
        (found,) = incidents_in(self.journal.entries())
        return found

    def confirmed(self) -> list[str]:
        return [decode_body(entry, events.AlertConfirmed).status for entry in self.incident.of(events.CONFIRMED)]


def test_a_history_is_sampled_once_for_each_of_its_windows(history: str, tmp_path: Path) -> None:
    since, until = (datetime.datetime.fromtimestamp(at, datetime.UTC).isoformat() for at in (END - HOUR, END))
    given = SourceOptions(prometheus=history, select='{job="vllm"}', since=since, until=until, slo="1s")
    desk = Desk(tmp_path, given)
    assert desk.attendance.observe_once() == 300, desk.said
    (sampled,) = (decode_body(entry, events.ServiceSampled) for entry in desk.incident.of(events.SAMPLED))
    assert sampled.seconds == 300
    # Replica b alone, at 4 a second, answers later than the SLO; a has as many and c half of it for two minutes.
    assert sampled.requests == pytest.approx(2640, rel=0.05)
    assert sampled.over_slo == pytest.approx(1200, rel=0.05)
    assert {subject.partition("/")[0] for subject in sampled.values} == {"model"}
    assert desk.confirmed() == ["confirmed"]


def test_confirmed_alert_is_not_diagnosed_again(tmp_path: Path) -> None:
    with paged(Page(each=(300, 100))) as page:
        desk = Desk(tmp_path, SourceOptions(server=(page.url,), slo="500ms", window="1s", nvml=False))
        for _ in range(3):
            assert desk.attendance.observe_once() == 1
    assert desk.confirmed() == ["confirmed"]
    assert len(desk.incident.of(events.DIAGNOSED)) == 1
    assert len(desk.incident.of(events.SAMPLED)) == 3
    confirmation = decode_body(desk.incident.of(events.CONFIRMED)[0], events.AlertConfirmed)
    assert desk.said == [f"{desk.incident.id}: confirmed: {confirmation.message}"]


def test_what_was_not_known_is_confirmed_once_it_is(tmp_path: Path) -> None:
    with paged(Page(each=(0, 0))) as page:
        desk = Desk(tmp_path, SourceOptions(server=(page.url,), slo="500ms", window="1s", nvml=False))
        desk.attendance.observe_once()
        desk.attendance.observe_once()
        page.each = (300, 100)
        desk.attendance.observe_once()
        desk.attendance.observe_once()
    assert desk.confirmed() == ["unknown", "confirmed"]


def test_a_time_in_which_the_service_could_not_be_read_is_no_sample(tmp_path: Path) -> None:
    with paged(Page(each=(300, 100))) as page:
        given = SourceOptions(server=(page.url,), slo="500ms", window="1s", nvml=False)
        desk = Desk(tmp_path, given)
        desk.attendance.observe_once()
    desk.attendance.observe_once()
    desk.attendance.observe_once()
    assert len(desk.incident.of(events.SAMPLED)) == 1
    assert [said for said in desk.said if "cannot be read" in said] == desk.said[1:]
    assert len(desk.said) == 2


def test_nothing_is_observed_without_an_open_incident(tmp_path: Path) -> None:
    with paged(Page()) as page:
        desk = Desk(tmp_path, SourceOptions(server=(page.url,), window="1s", nvml=False))
        desk.journal.append(desk.incident.id, events.CLOSED, events.IncidentClosed("resolved"))
        assert desk.attendance.observe_once() == 1
        assert page.fast == 0
    assert desk.incident.of(events.SAMPLED) == ()


def test_an_incident_of_another_target_is_let_alone(tmp_path: Path) -> None:
    with paged(Page()) as page:
        desk = Desk(tmp_path, SourceOptions(server=(page.url,), window="1s", nvml=False), targets=("shop",))
        desk.intake.about = IncidentTemplate(targets=("another",))
        desk.attendance.observe_once()
    assert desk.incident.of(events.SAMPLED) == ()


def test_a_journal_that_cannot_be_written_ends_nothing(tmp_path: Path) -> None:
    with paged(Page()) as page:
        desk = Desk(tmp_path, SourceOptions(server=(page.url,), window="1s", nvml=False))
        desk.journal.path.chmod(0o400)
        desk.journal.path.rename(desk.journal.path.with_name("away"))
        assert desk.attendance.observe_once() == 1
        assert len(desk.said) == 1
        desk.journal.path.with_name("away").rename(desk.journal.path)
        desk.journal.path.chmod(0o600)
        desk.attendance.observe_once()
    assert len(desk.incident.of(events.SAMPLED)) == 1


def test_a_further_alert_gets_a_diagnosis_of_its_own(tmp_path: Path) -> None:
    with paged(Page(each=(300, 100))) as page:
        desk = Desk(
            tmp_path, SourceOptions(server=(page.url,), slo="500ms", window="1s", nvml=False), targets=(page.url,)
        )
        desk.attendance.observe_once()
        desk.intake.take(alerted(alert(1)))  # a repetition
        desk.attendance.observe_once()
        desk.intake.take(alerted(alert(7, name="ErrorsHigh"), key="other"))
        desk.attendance.observe_once()
        desk.attendance.observe_once()
    assert desk.confirmed() == ["confirmed"], "the status is the same, and journaled once"
    assert len(desk.incident.of(events.DIAGNOSED)) == 2
    assert "as another alert fires" in desk.said[-1]


def test_each_of_two_open_incidents_is_observed(tmp_path: Path) -> None:
    with paged(Page(each=(300, 100))) as page:
        desk = Desk(tmp_path, SourceOptions(server=(page.url,), slo="500ms", window="1s", nvml=False))
        desk.intake.take(alerted(alert(7, name="ErrorsHigh"), key="other"))
        desk.attendance.observe_once()
    found = incidents_in(desk.journal.entries())
    assert [(len(one.of(events.DIAGNOSED)), len(one.of(events.SAMPLED))) for one in found] == [(1, 1), (1, 1)]
