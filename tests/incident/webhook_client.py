"""A webhook server whose intake is a list, and clients of it: well-behaved ones, and raw sockets."""

from __future__ import annotations

import contextlib
import http.client
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from latdoctor.errors import LatdoctorError
from latdoctor.incident import webhook_server
from latdoctor.incident.alert_intake import IntakeResult
from latdoctor.incident.events import AlertsReceived
from latdoctor.incident.webhook_request import Access
from tests.incident.alert_builders import alert, notification

PATIENCE = 20.0  # seconds
GOOD = notification([alert(1)])


@dataclass
class Desk:
    """Takes notifications in, or fails to."""

    url: str = ""
    taken: list[AlertsReceived] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    trouble: LatdoctorError | None = None

    def take(self, alerted: AlertsReceived) -> IntakeResult:
        if self.trouble:
            raise self.trouble
        self.taken.append(alerted)
        return IntakeResult("inc-1", len(self.taken) == 1, len(alerted.alerts), 0, False)


@contextlib.contextmanager
def listening(access: Access | None = None) -> Iterator[Desk]:
    desk = Desk()
    with webhook_server.serve_webhook("127.0.0.1", 0, access or Access(), desk.take, desk.said.append) as url:
        desk.url = url
        yield desk


@dataclass(frozen=True)
class Answer:
    status: int
    text: str
    headers: dict[str, str]


def ask(desk: Desk, method: str = "POST", path: str = "/alerts", body: bytes | None = GOOD, **headers: str) -> Answer:
    connection = http.client.HTTPConnection(urlsplit(desk.url).netloc, timeout=PATIENCE)
    sent = {"Content-Type": "application/json", **{name.replace("_", "-"): value for name, value in headers.items()}}
    try:
        connection.request(method, path, body, sent)
        answer = connection.getresponse()
        return Answer(answer.status, answer.read().decode(), dict(answer.getheaders()))
    finally:
        connection.close()


def connect(desk: Desk) -> socket.socket:
    place = urlsplit(desk.url)
    return socket.create_connection((place.hostname, place.port), PATIENCE)


def raw(desk: Desk, content: bytes) -> bytes:
    """What is answered to these bytes, after which nothing more is sent."""
    with connect(desk) as client:
        with contextlib.suppress(OSError):  # it was answered before all was read
            client.sendall(content)
            client.shutdown(socket.SHUT_WR)
        return answered(client)


def answered(client: socket.socket) -> bytes:
    """All that comes until the connection ends."""
    answer = b""
    with contextlib.suppress(ConnectionResetError):
        while part := client.recv(65536):
            answer += part
    return answer
