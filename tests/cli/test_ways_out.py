"""No kind of credential or prompt leaves by any way: bundle, journal, notification, JSON, HTML, Markdown, terminal."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from latdoctor.evidence.bundle_files import opened
from latdoctor.incident import recorder
from latdoctor.incident.alert_intake import Intake
from latdoctor.incident.alertmanager import parse
from latdoctor.incident.state import incidents_in
from latdoctor.incident.timeline import timeline
from latdoctor.journal.store import Journal
from latdoctor.notify.messages import notices
from latdoctor.notify.outbox import MAKERS
from tests.cli.running import run
from tests.evidence.redaction.samples import Sample, samples
from tests.incident.alert_builders import alert, notification
from tests.notify.incident_cases import RECEIVERS
from tests.report.test_timeline_forms import FORMS

SAMPLES = samples()


def left(text: str | bytes) -> list[str]:
    """The kinds of which something stands in `text`."""
    shown = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    return [one.id for one in SAMPLES if any(part in shown for part in one.private if len(part) >= 8)]


def escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """A metrics page whose models are called as the samples read."""
    rows = [
        f'vllm:num_requests_{state}{{model_name="{escaped(one.text)}"}} {value}'
        for state, value in (("running", 5), ("waiting", 700))
        for one in SAMPLES
    ]
    path = tmp_path / "page.prom"
    path.write_text("\n".join(rows) + "\n")
    return path


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "server.log"
    path.write_text("".join(f"{one.text}\nINFO 05-19 10:00:00 [core.py:1] step\n" for one in SAMPLES))
    return path


ENCODED: dict[str, Callable[[bytes], bytes]] = {
    "utf-8": lambda raw: raw,
    "hole": lambda raw: b"\0" * 9000 + raw,
    "zeros": lambda raw: raw.replace(b" step", b" step\0\0"),
    "utf-16": lambda raw: raw.decode().encode("utf-16"),
    "utf-16-be": lambda raw: raw.decode().encode("utf-16-be"),
    "utf-16-le": lambda raw: raw.decode().encode("utf-16-le"),
    "utf-32": lambda raw: raw.decode().encode("utf-32"),
}


@pytest.mark.parametrize("kind", ENCODED)
def test_a_log_in_a_bundle(log: Path, tmp_path: Path, kind: str) -> None:
    plain = log.read_bytes()
    log.write_bytes(ENCODED[kind](plain))
    assert len(left(plain)) == len([one for one in SAMPLES if any(len(part) >= 8 for part in one.private)])
    made = run(["collect", "--log", str(log), "--to", str(tmp_path / "kept.tar.zst")])
    assert made.code == 0
    with opened(tmp_path / "kept.tar.zst") as bundle:
        kept = b"".join(one.read() for one in bundle.artifacts)
        assert bundle.redaction is not None
        assert bundle.redaction.unread == ()
    shown = kept.decode(kind) if kind.startswith("utf") else kept.decode()
    assert left(shown) == []
    assert shown.count("step") == len(SAMPLES), "what is no secret is kept"


def test_a_page_in_a_bundle(page: Path, tmp_path: Path) -> None:
    assert run(["collect", "--metrics", str(page), "--to", str(tmp_path / "kept.tar.zst")]).code == 0
    with opened(tmp_path / "kept.tar.zst") as bundle:
        assert left(b"".join(one.read() for one in bundle.artifacts)) == []


@pytest.mark.parametrize("form", ["json", "markdown", "text", "verbose"])
def test_the_labels_of_a_page_in_an_answer(page: Path, tmp_path: Path, form: str) -> None:
    how = {"verbose": ["-vv"], "text": []}.get(form, ["-o", form])
    html = tmp_path / "page.html"
    made = run(["diagnose", str(page), *how, *(["--html", str(html)] if form != "json" else [])])
    assert left(made.out + made.err) == []
    assert "page" in made.out
    if form != "json":
        assert left(html.read_text()) == []


@pytest.mark.parametrize("form", ["json", "markdown", "text"])
def test_the_lines_of_a_log_in_an_answer(log: Path, form: str) -> None:
    made = run(["diagnose", str(log), *([] if form == "text" else ["-o", form])])
    assert left(made.out + made.err) == []


def test_an_alert_and_a_note_in_the_journal_and_in_notifications(tmp_path: Path) -> None:
    journal = Journal.opened(tmp_path / "journal.sqlite")
    intake = Intake(journal, tmp_path)
    for number, one in enumerate(SAMPLES):
        intake.take(parse(notification([_leaking(number, one)], key=f"{{}}:{{{number}}}")))
    for number, incident in enumerate(incidents_in(journal.entries())):
        recorder.add_note(journal, incident, SAMPLES[number % len(SAMPLES)].text, "Ada")
    assert left((tmp_path / "journal.sqlite").read_bytes()) == []
    for incident in incidents_in(journal.entries()):
        assert [name for name, form in FORMS.items() if left(form(timeline(incident)))] == []
        for to in RECEIVERS:
            for message in (MAKERS[to.kind](incident, one, to) for one in notices(incident)):
                assert message is None or left(message.body + message.message.encode()) == []


def _leaking(number: int, sample: Sample) -> dict[str, object]:
    given = alert(number + 1)
    given["labels"] |= {"thing": sample.text}
    given["annotations"] |= {"summary": sample.text}
    return given
