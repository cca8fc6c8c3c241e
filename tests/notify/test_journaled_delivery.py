"""All that is due, journaled try by try: in simulated time, against real servers, killed and in a race."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from latdoctor.http.client import Secret
from latdoctor.incident import events
from latdoctor.incident.state import decode_body, incidents_in
from latdoctor.journal.entry import JournalEntry, JournalError, Moment
from latdoctor.journal.locks import LockHeldError
from latdoctor.journal.store import Journal
from latdoctor.notify.journaled_delivery import DeliveryContext, DeliveryResult, DeliverySummary, deliver
from latdoctor.notify.outbox import DueMessages, due_for_all
from latdoctor.notify.receiver_config import Receiver, ReceiverKind
from latdoctor.notify.transport import Keys, attempt
from tests.http.stub_server import Server, answering, each, hangs, serving
from tests.notify import incident_cases as stories
from tests.remediation.actions.lossy_proxy import PATIENCE

ROOT = Path(__file__).parents[2]
CANARY = "c4n4ryc4n4ryc4n4ryc4n4ryc4n4ry12"


@dataclass
class Clock:
    """Time that passes only where somebody sleeps."""

    seconds: float = 10.0
    slept: list[float] = field(default_factory=list)

    def now(self) -> Moment:
        return stories.at(self.seconds)

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.seconds += seconds


@dataclass
class Desk:
    """A journal with the beginning of a story, and one receiver."""

    folder: Path
    server: Server
    kind: str = ReceiverKind.WEBHOOK
    clock: Clock = field(default_factory=Clock)
    heard: list[DeliveryResult] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.folder.mkdir(mode=0o700, exist_ok=True)
        moments = iter([stories.at(one["at"]) for one in stories.story("promo-rush")[:4]])
        told = Journal.opened(self.folder / "journal.sqlite", clock=lambda: next(moments))
        for one in stories.story("promo-rush")[:4]:
            told.append(one["run"], one["kind"], one["body"])
        self.journal = Journal(told.path, True, self.clock.now)
        url = "" if self.kind == ReceiverKind.SLACK else self.server.url
        self.receiver = Receiver("r", self.kind, url=url, allow_private=True, on=("alert", "diagnosis"))
        self.keys = Keys(
            Secret(self.server.url if self.kind == ReceiverKind.SLACK else ""),
            Secret(CANARY if not url or self.kind == ReceiverKind.PAGERDUTY else ""),
        )

    def look(self) -> DueMessages:
        return due_for_all(self.receiver, incidents_in(self.journal.entries()), self.clock.now())

    def deliver(self, seconds: float = 60.0) -> DeliverySummary:
        office = DeliveryContext(
            self.journal, self.folder, self.heard.append, self.clock.now, self.clock.sleep, lambda *_: ["127.0.0.1"]
        )
        return deliver(self.receiver, self.keys, self.look, office, seconds)

    def entries(self) -> list[JournalEntry]:
        return list(self.journal.entries(kinds=(events.NOTIFYING, events.NOTIFIED)))

    def outcomes(self) -> list[events.NotificationSent]:
        return [decode_body(one, events.NotificationSent) for one in self.entries() if one.kind == events.NOTIFIED]


def ids(server: Server) -> list[str]:
    """Of webhooks: which message each request was."""
    heads = [asked.partition(b"\r\n\r\n")[0].decode() for asked in server.seen]
    return [line.partition(": ")[2] for head in heads for line in head.split("\r\n") if line.startswith("webhook-id")]


def test_all_notices_are_sent_once_in_order(tmp_path: Path) -> None:
    with serving(answering(200)) as server:
        desk = Desk(tmp_path / "state", server)
        assert desk.deliver().sent == 2
        assert [one.rsplit("/", 2)[1] for one in ids(server)] == ["alert", "diagnosis"]
        assert [one.kind for one in desk.entries()] == [events.NOTIFYING, events.NOTIFIED] * 2
        again = desk.deliver()
        assert (again.results, again.wait) == ([], None)
        assert len(server.seen) == 2
    assert desk.clock.slept == []


def test_a_failure_is_tried_again_with_the_same_id_after_a_pause(tmp_path: Path) -> None:
    serve = each(answering(500), answering(429, b"", "retry-after: 17"), answering(200))
    with serving(serve) as server:
        desk = Desk(tmp_path / "state", server)
        done = desk.deliver()
        first, second, third, other = ids(server)
    assert first == second == third != other
    assert desk.clock.slept == [1.0, 17.0]
    assert [one.sent for one in desk.outcomes()] == [False, False, True, True]
    assert [one.again_after for one in desk.outcomes()] == [1.0, 17.0, None, None]
    assert done.wait is None
    assert [result.outcome.sent for result in desk.heard] == [False, False, True, True]


def test_when_the_time_is_over_the_rest_waits_for_the_next_time(tmp_path: Path) -> None:
    with serving(each(answering(503, b"", "retry-after: 100"), answering(200))) as server:
        desk = Desk(tmp_path / "state", server)
        done = desk.deliver()
        assert (done.sent, done.wait) == (0, 100.0)
        assert desk.deliver().wait == 100.0
        assert len(server.seen) == 1
        desk.clock.seconds += 100
        assert desk.deliver().sent == 2
    assert desk.clock.slept == []


def test_a_receiver_that_is_down_is_given_up_after_so_many_tries(tmp_path: Path) -> None:
    with serving(answering(500)) as server:
        desk = Desk(tmp_path / "state", server)
        desk.deliver(3000.0)
        tries = len(server.seen)
    assert 15 <= tries <= 20
    assert sum(desk.clock.slept) <= 3600


def test_channel_gets_at_most_two_uncertain_attempts(tmp_path: Path) -> None:
    with serving(answering(500)) as server:
        desk = Desk(tmp_path / "state", server, ReceiverKind.SLACK)
        desk.deliver(3000.0)
        assert len(server.seen) == 4, "two things, each twice"


def test_refused_message_is_not_retried_and_others_are_sent(tmp_path: Path) -> None:
    with serving(each(answering(400), answering(200))) as server:
        desk = Desk(tmp_path / "state", server)
        assert [one.outcome.sent for one in desk.deliver().results] == [False, True]
        assert desk.deliver().results == []


def test_what_cannot_be_journaled_is_not_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> JournalEntry:
        raise JournalError("no space left")

    with serving(answering(200)) as server:
        desk = Desk(tmp_path / "state", server)
        monkeypatch.setattr(Journal, "append", fails)
        with pytest.raises(JournalError):
            desk.deliver()
        assert server.seen == []


def test_one_process_at_a_time_per_receiver(tmp_path: Path) -> None:
    """Two that come at once: one of them is told that the other is at it, and nothing is sent twice."""
    inside, go_on = threading.Event(), threading.Event()

    def slow(client: socket.socket, end: threading.Event) -> None:
        inside.set()
        go_on.wait(PATIENCE)
        answering(200)(client, end)

    with serving(slow) as server:
        desk = Desk(tmp_path / "state", server)
        first = threading.Thread(target=desk.deliver)
        first.start()
        assert inside.wait(PATIENCE)
        with pytest.raises(LockHeldError):
            desk.deliver()
        go_on.set()
        first.join(PATIENCE)
        assert len(server.seen) == len(set(ids(server))) == 2


def test_the_secret_is_nowhere_in_the_journal(tmp_path: Path) -> None:
    with serving(answering(500, f"you sent {CANARY}".encode())) as server:
        desk = Desk(tmp_path / "state", server, ReceiverKind.PAGERDUTY)
        desk.deliver(5.0)
        assert CANARY.encode() in server.bodies[0]
    for path in (tmp_path / "state").rglob("*"):
        assert not path.is_file() or CANARY.encode() not in path.read_bytes()
    assert "you sent …" in desk.outcomes()[0].why


KILLED = """
import sys
from pathlib import Path
from tests.notify.test_journaled_delivery import told_once
told_once(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
"""


def told_once(folder: Path, url: str, kind: str) -> None:
    """Tells a webhook or a channel at `url` what is due, in this process."""
    journal = Journal.opened(folder / "journal.sqlite", clock=lambda: stories.at(10))
    address = Secret(url if kind == ReceiverKind.SLACK else "")
    receiver = Receiver("r", kind, url="" if kind == ReceiverKind.SLACK else url, allow_private=True, on=("alert",))
    looks = lambda: due_for_all(receiver, incidents_in(journal.entries()), stories.at(10))  # noqa: E731
    office = DeliveryContext(journal, folder, now=lambda: stories.at(10), sleep=lambda _: None)
    deliver(receiver, Keys(address, Secret()), looks, office, 1.0)


@pytest.mark.parametrize(("kind", "most"), [(ReceiverKind.SLACK, 2), (ReceiverKind.WEBHOOK, 20)])
def test_killed_while_it_is_sent_the_same_is_sent_again_and_then_no_more(tmp_path: Path, kind: str, most: int) -> None:
    """SIGKILL while the receiver has the request and has not answered."""
    inside = threading.Semaphore(0)

    def kept(client: socket.socket, end: threading.Event) -> None:
        inside.release()
        hangs(client, end)

    with serving(each(kept, answering(200))) as server:
        desk = Desk(tmp_path / "state", server, kind)
        command = [sys.executable, "-c", KILLED, str(tmp_path / "state"), server.url, kind]
        with subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": f"{ROOT}/src:{ROOT}"}) as first:
            assert inside.acquire(timeout=60)
            first.send_signal(signal.SIGKILL)
        server.end.set()  # the server lets the first one go
        assert [one.kind for one in desk.entries()] == [events.NOTIFYING]
        for _ in range(2):
            told_once(tmp_path / "state", server.url, kind)
        assert len(server.bodies) == 2 <= most
        assert server.bodies[0] == server.bodies[1]
    assert [one.kind for one in desk.entries()] == [events.NOTIFYING, events.NOTIFYING, events.NOTIFIED]
    assert desk.outcomes()[0].sent


def test_killed_again_and_again_a_channel_hears_it_twice_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*arguments: object) -> None:
        attempt(*arguments)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    monkeypatch.setattr("latdoctor.notify.journaled_delivery.attempt", killed)
    with serving(answering(200)) as server:
        desk = Desk(tmp_path / "state", server, ReceiverKind.SLACK)
        for _ in range(10):
            with pytest.raises(KeyboardInterrupt):
                desk.deliver()
            if len(server.seen) == 3:
                break
        assert server.bodies.count(server.bodies[0]) == 2
