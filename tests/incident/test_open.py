"""An incident is opened once: by one process, by many at once, and by one that is killed at any call it makes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from latdoctor.errors import UsageError
from latdoctor.incident import events
from latdoctor.incident.lookup import addresses, folder_of, open_incident_for, open_incidents_for, select_incident
from latdoctor.incident.open import Opening, open_incident
from latdoctor.incident.sop.clock import stage_states
from latdoctor.incident.sop.loader import sop_of_incident
from latdoctor.incident.state import Incident, incidents_in
from latdoctor.journal.entry import now
from latdoctor.journal.store import Journal
from tests.crash.sweep import KILLED, killed_at, points
from tests.incident.journal_builders import SOP, entries, incident

OPENING = Path(__file__).with_name("open_process.py")
WRITES = ("write", "pwrite64", "ftruncate", "fsync", "fdatasync", "unlink", "mkdir", "rename")


def command(folder: Path, key: str = "", *targets: str) -> list[str]:
    return [sys.executable, str(OPENING), str(folder / "state"), key, *targets]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    return folder


def once(place: Path, key: str = "", *targets: str) -> Opening:
    source = events.OpenedBy.ALERT if key else events.OpenedBy.HAND
    wanted = events.IncidentOpened("P99 is 3 s", targets, source, SOP.id, SOP.digest, key=key)
    return open_incident(Journal.opened(place / "journal.sqlite"), place, wanted, SOP)


def test_one_for_each_group_of_alerts_and_for_each_target(place: Path) -> None:
    first = once(place, "g1", "http://10.0.0.5:8000/metrics")
    assert first.new
    assert once(place, "g1", "http://10.0.0.9:8000") == Opening(first.id, new=False)  # the same group
    assert once(place, "g2", "10.0.0.5:8000") == Opening(first.id, new=False)  # the same target
    assert once(place, "", "HTTP://10.0.0.5:8000") == Opening(first.id, new=False)
    other = once(place, "g3", "10.0.0.6:8000")
    by_hand = once(place)
    assert len({first.id, other.id, by_hand.id}) == 3
    assert once(place) == Opening(by_hand.id, new=False)
    assert once(place, "g4").new  # an alert that names no target is told from others by its group alone
    journal = Journal.opened(place / "journal.sqlite")
    journal.append(first.id, events.CLOSED, events.IncidentClosed("resolved"))
    assert once(place, "g1", "10.0.0.5:8000").new
    journal.append(other.id, events.ALERTED, events.AlertsReceived("g5", "", ()))
    assert once(place, "g5").id == other.id  # a group that joined it


def test_many_at_once_open_one(tmp_path: Path) -> None:
    line = command(tmp_path, "g", "10.0.0.5:8000")
    running = [subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(12)]
    said = [process.communicate(timeout=60) for process in running]
    assert [err for _, err in said if err] == []
    assert len({out.split()[0] for out, _ in said}) == 1
    assert [out.split()[1] for out, _ in said].count("True") == 1
    assert len(incidents_in(Journal.reading(tmp_path / "state" / "journal.sqlite").entries())) == 1


def test_killed_at_every_call(tmp_path: Path) -> None:
    """Then nothing is open, or one whole incident is; asked again, it is the same one and its clock goes on."""
    line = command(tmp_path / "whole", "g", "10.0.0.5:8000")
    swept = points(line, WRITES)
    assert swept > 20
    found = set()
    for k in range(1, swept + 1):
        folder = tmp_path / str(k)
        ended = killed_at(command(folder, "g", "10.0.0.5:8000"), k, WRITES)
        assert ended.returncode == KILLED
        state = folder / "state"
        before = incidents_in(Journal.reading(state / "journal.sqlite").entries())
        found.add(len(before))
        assert len(before) >= len(ended.stdout.split()) // 2
        again = once(state, "g", "10.0.0.5:8000")
        assert again.new is not bool(before)
        (one,) = incidents_in(Journal.reading(state / "journal.sqlite").entries())
        assert [one.id] == [again.id] * len([one])
        assert sop_of_incident(state, one).digest == SOP.digest
        assert len(stage_states(SOP, one, now())) == len(SOP.stages)
        assert list(folder_of(state, one.id).iterdir()) == [folder_of(state, one.id) / "slow-inference.yaml"]
    assert found == {0, 1}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("http://127.0.0.1:8002/metrics", "localhost:8002"),
        ("http://[::1]:8002", "127.0.0.1:8002"),
        ("https://Shop.example/x", "https://shop.example:443"),
        ("http://user:secret@10.0.0.5:8000/metrics?x=y", "10.0.0.5:8000"),
        ("checkout-bot", "checkout-bot"),
        (" checkout-bot ", "Checkout-Bot"),
    ],
)
def test_one_place_written_in_two_ways(one: str, other: str) -> None:
    assert addresses([one]) == addresses([other]) != frozenset()


def test_two_places() -> None:
    assert len(addresses(["10.0.0.5:8000", "10.0.0.5:8001", "10.0.0.6:8000", "10.0.0.5", "http://[", "", " "])) == 5


def test_diagnosis_belongs_to_the_incident_of_its_target() -> None:
    rows = [
        {"kind": events.OPENED, "at": 1, "run": "inc-b", "targets": ["10.0.0.6:8000"]},
        {"kind": events.OPENED, "at": 2, "run": "inc-any", "targets": []},
        {"kind": events.OPENED, "at": 3, "run": "inc-too", "targets": ["10.0.0.6:8000", "shop"]},
    ]
    found = incidents_in(entries(rows))
    assert open_incident_for(found, ["http://10.0.0.5:8000/metrics"]) == found[0].id
    assert open_incident_for(found, ["shop"]) == "inc-too"
    assert open_incident_for(found, ["another"]) == "inc-any"
    assert open_incident_for(found, ["10.0.0.6:8000"]) == ""  # two could be meant
    assert [one.id for one in open_incidents_for(found, ["10.0.0.6:8000"])] == ["inc-b", "inc-too"]
    assert open_incident_for(found[:1], ["another"]) == ""
    with pytest.raises(UsageError, match="4 incidents are open"):
        select_incident(found)
    assert select_incident(found, "inc-a").id == "inc-any"
    assert open_incident_for([incident([{"kind": events.CLOSED, "at": 5}])], ["10.0.0.5:8000"]) == ""


def test_a_host_alone_means_its_ports_where_that_is_sure() -> None:
    rows = [
        {"kind": events.OPENED, "at": 1, "run": "inc-host", "targets": ["checkout"], "hosts": ["checkout"]},
        {"kind": events.OPENED, "at": 2, "run": "inc-port", "targets": ["http://checkout:8080/metrics"]},
        {"kind": events.OPENED, "at": 3, "run": "inc-name", "targets": ["shop", "10.0.0.7:8000"]},
    ]
    found = incidents_in(entries(rows))[1:]
    assert open_incident_for(found, ["http://CHECKOUT:9090/metrics"]) == "inc-host"
    assert open_incident_for(found, ["checkout:8080"]) == "inc-port"  # its own goes before its host's
    assert open_incident_for(found, ["shop:8000"]) == ""  # a configured name is no host
    assert open_incident_for(found, ["checkout-two:9090"]) == ""
    other = incidents_in(entries([{**rows[0], "targets": ["checkout", "db"], "hosts": ["checkout", "db"]}]))[1:]
    assert (
        open_incident_for([*found, Incident("inc-too", other[0].opened)], ["checkout:9090"]) == ""
    )  # two could be meant


def test_a_host_alone_doubles_no_incident_of_a_port_of_it(place: Path) -> None:
    def opening(*targets: str) -> Opening:
        hosts = tuple(one for one in targets if ":" not in one)
        asked = events.IncidentOpened("slow", targets, events.OpenedBy.HAND, SOP.id, SOP.digest, hosts=hosts)
        return open_incident(Journal.opened(place / "journal.sqlite"), place, asked, SOP)

    first = opening("http://checkout:8080/metrics")
    assert opening("checkout") == Opening(first.id, new=False)
    second = opening("checkout:9090")
    assert second.new
    third = opening("checkout")  # either of the two could be meant
    assert third.new
    assert opening("checkout:7070") == Opening(third.id, new=False)
