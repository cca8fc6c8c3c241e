"""`latdoctor listen`: what it answers, what it journals, and that nothing of that is lost however it ends."""

from __future__ import annotations

import re
import signal
import threading
from collections import Counter
from pathlib import Path

import httpx
import pytest

from latdoctor.incident import events
from latdoctor.incident.state import Incident, decode_body
from tests.cli.running import run
from tests.incident.alert_builders import alert, notification
from tests.incident.listen_process import PATIENCE, Page, listener, paged, until, until_journaled

CANARY = "c4n4ry"


def send(url: str, content: bytes, token: str = "") -> int:
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    return httpx.post(url, content=content, headers=headers, timeout=30, trust_env=False).status_code


def firing(incident: Incident) -> Counter[str]:
    told = (decode_body(entry, events.AlertsReceived) for entry in incident.of(events.ALERTED))
    return Counter(one.fingerprint for piece in told for one in piece.alerts)


def test_token_from_a_file_is_required_and_never_shown(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"{CANARY}\n")
    with listener(tmp_path, "--auth-file", "token") as running:
        assert send(running.url, notification([alert(1)])) == 401
        assert send(running.url, notification([alert(1)]), CANARY) == 200
        assert send(running.url, notification([alert(1)]), CANARY) == 200
        (incident,) = running.incidents
        assert firing(incident) == {"0000000000000001": 1}
        assert (incident.opened.sop, incident.opened.by) == ("slow-inference", "latdoctor listen")
        assert send(running.url, notification([alert(1, "resolved")]), CANARY) == 200
    assert running.process.returncode == 0
    assert incident.open
    assert any("stays open until the fix is verified" in line for line in running.said)
    assert CANARY not in "\n".join(running.said)


def test_what_was_answered_is_there_after_a_kill_and_is_not_doubled(tmp_path: Path) -> None:
    answered: list[int] = []
    with listener(tmp_path) as running:
        enough = threading.Event()

        def sends() -> None:
            for number in range(10_000):
                try:
                    status = send(running.url, notification([alert(number)]))
                except httpx.HTTPError:
                    return
                if status == 200:
                    answered.append(number)
                if len(answered) >= 20:
                    enough.set()

        sender = threading.Thread(target=sends)
        sender.start()
        assert enough.wait(PATIENCE)
        running.process.send_signal(signal.SIGKILL)
        sender.join()
    assert running.process.returncode == -signal.SIGKILL
    (incident,) = running.incidents
    known = firing(incident)
    assert {f"{number:016x}" for number in answered} <= set(known)
    with listener(tmp_path) as again:
        again_all = [alert(number) for number in answered]
        assert send(again.url, notification(again_all)) == 200
        assert send(again.url, notification([alert(10_001)])) == 200
        (incident,) = again.incidents
    assert firing(incident) == Counter({**known, f"{10_001:016x}": 1})


@pytest.mark.parametrize(
    ("each", "status"), [((360, 40), "confirmed"), ((0, 0), "unknown")], ids=["slow", "nobody asks"]
)
def test_alert_is_confirmed_by_a_diagnosis_and_then_sampled(tmp_path: Path, each: tuple[int, int], status: str) -> None:
    options = ("--slo", "500ms", "--window", "2s", "--every", "1s")
    with paged(Page(each=each)) as page, listener(tmp_path, "--server", page.url, *options) as running:
        assert send(running.url, notification([alert(1)])) == 200
        until_journaled(lambda: len(running.incidents[0].of(events.SAMPLED)) >= 3, running)
        (incident,) = running.incidents
    assert running.process.returncode == 0, running.said
    (said,) = (decode_body(entry, events.AlertConfirmed) for entry in incident.of(events.CONFIRMED))
    assert said.status == status, said
    (diagnosed,) = (decode_body(entry, events.DiagnosisRecord) for entry in incident.of(events.DIAGNOSED))
    assert said.diagnosis == diagnosed.run_id
    assert (running.state / diagnosed.document).is_file()
    assert (running.state / diagnosed.bundle).is_file()
    samples = [decode_body(entry, events.ServiceSampled) for entry in incident.of(events.SAMPLED)]
    assert [one.slo_p99 for one in samples] == [0.5] * len(samples)
    if each == (0, 0):
        assert {one.requests for one in samples} == {0}
        return
    assert all(one.requests and one.over_slo == pytest.approx(one.requests / 10) for one in samples)
    assert sum(one.requests or 0 for one in samples) < page.fast + page.slow, "nothing is counted twice"
    assert all(any("latency.p99" in values for values in one.values.values()) for one in samples)


def test_false_alarm_requires_every_essential_signal(tmp_path: Path) -> None:
    with paged(Page()) as page, listener(tmp_path, "--server", page.url, "--slo", "500ms", "--window", "2s") as running:
        assert send(running.url, notification([alert(1)])) == 200
        until(lambda: bool(running.incidents[0].of(events.CONFIRMED)), running)
        (incident,) = running.incidents
    (said,) = (decode_body(entry, events.AlertConfirmed) for entry in incident.of(events.CONFIRMED))
    (diagnosed,) = (decode_body(entry, events.DiagnosisRecord) for entry in incident.of(events.DIAGNOSED))
    assert said.status == {"healthy": "false-alarm", "inconclusive": "unknown"}[diagnosed.level]


def test_a_service_that_does_not_answer_confirms_the_alert(tmp_path: Path) -> None:
    with listener(tmp_path, "--server", "http://127.0.0.1:9/metrics", "--window", "1s", "--every", "1s") as running:
        assert send(running.url, notification([alert(1)])) == 200
        until(lambda: bool(running.incidents[0].of(events.CONFIRMED)), running)
        until(lambda: any("the service cannot be read" in line for line in running.said), running)
        (incident,) = running.incidents
    (said,) = (decode_body(entry, events.AlertConfirmed) for entry in incident.of(events.CONFIRMED))
    assert said.status == "confirmed"
    assert len(incident.of(events.DIAGNOSED)) == 1
    assert incident.of(events.SAMPLED) == ()  # nothing was seen: that is no sample of nothing


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--listen", "0.0.0.0:9095"], "any client could send alerts"),
        (["--listen", "shop:9095"], "any client could send alerts"),
        (["--listen", "9095"], "no place to listen at"),
        (["--listen", "127.0.0.1:99999"], "no place to listen at"),
        (["--auth-file", "no-such-file"], "cannot be read"),
        (["--tls-cert", "server.pem"], "TLS needs a certificate and its key"),
        (["--client-ca", "ca.pem"], "TLS needs a certificate and its key"),
        (["--every", "0s"], "--every"),
        (["--sop", "nonsense"], "there is no SOP"),
        (["--server", "ftp://x"], "--server"),
        (["--target", "nobody"], "no target 'nobody' is configured"),
    ],
)
def test_what_makes_no_sense_is_refused(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LATDOCTOR_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    outcome = run(["listen", *arguments])
    assert outcome.code == 2, outcome.err
    assert said in outcome.err
    assert not (tmp_path / "state").exists()


def test_oversized_alert_is_accepted_and_the_cut_logged(tmp_path: Path) -> None:
    fat = alert(1)
    fat["labels"] |= {f"a{number}": "x" for number in range(80)}
    with listener(tmp_path) as running:
        assert send(running.url, notification([alert(2), fat])) == 200
        (incident,) = running.incidents
    assert sorted(firing(incident)) == ["0000000000000001", "0000000000000002"]
    assert f"{incident.id}: opened by LatencyHigh. Next: latdoctor sop status --incident {incident.id}" in running.said
    assert f"{incident.id}: cut to fit: LatencyHigh (18 labels left out)" in running.said


def test_receivers_are_checked_before_listening(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "latdoctor.yaml").write_text("notify: {a: {kind: sms}}\n")
    outcome = run(["listen"])
    assert outcome.code == 2
    assert "latdoctor.yaml:1: kind: 'sms' is not one of" in outcome.err


def test_token_sources_are_documented_consistently() -> None:
    refused, shown = run(["listen", "--listen", "0.0.0.0:9095"]).err, run(["listen", "--help"]).out
    page = (Path(__file__).parents[2] / "docs/alerts.md").read_text()
    for text in (refused, shown, page):
        assert {"--auth-file", "LATDOCTOR_LISTEN_AUTH", "LATDOCTOR_LISTEN_AUTH_FILE"} <= set(
            re.findall(r"[\w-]+", text)
        )


@pytest.mark.parametrize("variable", ["LATDOCTOR_LISTEN_AUTH", "LATDOCTOR_LISTEN_AUTH_FILE"])
def test_token_from_the_environment_is_required(variable: str, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(CANARY)
    with listener(tmp_path, **{variable: "token" if variable.endswith("FILE") else CANARY}) as running:
        assert send(running.url, notification([alert(1)])) == 401
        assert send(running.url, notification([alert(1)]), CANARY) == 200


def test_an_empty_token_is_none(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("\n")
    (tmp_path / "token").chmod(0o644)
    with listener(tmp_path, "--auth-file", "token") as running:
        pass
    assert running.process.returncode == 2
    assert "other users can read these credentials" in running.said[0]
    assert "no credentials" in running.said[1]
