"""The forms of a timeline: JSON is the source, and every other is made from it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import jsonschema
import msgspec
import pytest

from latdoctor.incident import events
from latdoctor.incident.postmortem import SHORT
from latdoctor.incident.sop.clock import StageState
from latdoctor.incident.timeline import of_run, timeline
from latdoctor.incident.timeline_model import Timeline
from latdoctor.remediation.run_result import Outcome
from latdoctor.report import machine_formats, timeline_cloudevents
from latdoctor.report import timeline as timeline_report
from tests.incident.scenarios import ID, RUN, Log, carried_out, promo_rush

GOLDEN = Path(__file__).parent / "golden"
FORMS: dict[str, Callable[[Timeline], str]] = {
    "json": machine_formats.render_timeline,
    "markdown": timeline_report.render_markdown,
    "text": timeline_report.render_text,
    "cloudevents": timeline_cloudevents.render,
}
SUFFIX = {"json": "json", "markdown": "md", "text": "txt", "cloudevents": "ndjson"}
STAGES = (
    StageState("confirmed", "Alert confirmed", 60.0, "met", "2026-11-22T06:49:29.000000Z", 29.0, 31.0, "a" * 64),
    StageState(
        "mitigated", "Mitigated", 100.0, "late", "2026-11-22T06:50:59.000000Z", 119.0, -19.0, "b" * 64, "marked by Ada"
    ),
    StageState("verified", "Fix verified", 3600.0, "unknown", why="the latest evidence is unknown"),
)


def promo() -> Timeline:
    return timeline(promo_rush().incident, STAGES)


def taken_back() -> Timeline:
    log = Log()
    carried_out(log, 0, outcome=Outcome.ROLLED_BACK)
    return of_run(RUN, log.entries)


def just_opened() -> Timeline:
    log = Log()
    log.add(0, events.OPENED, events.IncidentOpened("slow", (), events.OpenedBy.HAND, "", "", by="Ada"))
    return timeline(log.incident)


STORIES = {"promo-rush": promo, "taken-back": taken_back, "just-opened": just_opened}


def numbered(text: str, told: Timeline) -> str:
    """Digests by the numbers of their entries: what else an entry may hold one day changes nothing here."""
    digests = {moment.digest: moment.seq for moment in told.moments} | {told.last.digest: told.last.seq}
    digests |= {one.digest: 900_000 + place for place, one in enumerate(told.samples) if one.digest not in digests}
    for digest, seq in digests.items():
        text = text.replace(digest, f"entry-{seq:06d}{'-' * 52}").replace(digest[:SHORT], f"entry-{seq:06d}")
    return text


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("story", STORIES)
def test_it_reads_as_it_did(story: str, form: str) -> None:
    """Where a change is wanted: delete the file, run this twice, and read what git shows."""
    path = GOLDEN / f"timeline-{story}.{SUFFIX[form]}"
    told = STORIES[story]()
    made = numbered(FORMS[form](told), told)
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        path.write_text(made, encoding="utf-8")
        pytest.fail(f"{path.name} was written: read it")
    assert made == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("story", STORIES)
def test_every_form_is_made_from_the_json_document_alone(story: str) -> None:
    told = STORIES[story]()
    again = machine_formats.parse_timeline(machine_formats.render_timeline(told).encode())
    assert again == told
    assert {name: form(again) for name, form in FORMS.items()} == {name: form(told) for name, form in FORMS.items()}


@pytest.mark.parametrize("story", STORIES)
def test_the_document_keeps_to_its_schema(story: str) -> None:
    document = json.loads(machine_formats.render_timeline(STORIES[story]()))
    jsonschema.validate(document, machine_formats.timeline_schema(), cls=jsonschema.Draft202012Validator)
    assert document["schema_version"] == "1"
    del document["moments"]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, machine_formats.timeline_schema(), cls=jsonschema.Draft202012Validator)


CLOUDEVENT = json.loads((Path(__file__).parent / "cloudevents.schema.json").read_text())
RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
URI_REFERENCE = re.compile(r"[A-Za-z0-9._~:/?#@!$&'()*+,;=%\[\]-]+")


@pytest.mark.parametrize("story", STORIES)
def test_each_line_is_a_cloudevent(story: str) -> None:
    told = STORIES[story]()
    found = [json.loads(line) for line in timeline_cloudevents.render(told).splitlines()]
    for event in found:
        jsonschema.validate(event, CLOUDEVENT, cls=jsonschema.Draft7Validator)
        assert RFC3339.fullmatch(event["time"]), event["time"]
        assert URI_REFERENCE.fullmatch(event["source"])
        assert re.fullmatch(r"io\.latdoctor\.[a-z.-]+\.v1", event["type"])
        assert event["datacontenttype"] == "application/json"
    ids = [event["id"] for event in found]
    assert len(set(ids)) == len(ids), "an id tells an event from all others of its source"
    assert len(found) == len(told.moments) + len(told.samples) + len(told.stages)


def test_what_is_sent_again_has_the_same_ids_and_what_came_since_others() -> None:
    log = promo_rush()
    earlier = Log()
    earlier.entries = log.entries[:-3]
    first = {event.id for event in timeline_cloudevents.cloud_events(timeline(earlier.incident))}
    then = {event.id for event in timeline_cloudevents.cloud_events(timeline(log.incident))}
    assert first < then
    assert all(any(one.startswith(entry.digest) for one in then) for entry in log.entries)


def test_a_deadline_is_an_event_when_it_falls_and_another_once_it_stands_otherwise() -> None:
    def deadlines(stage: StageState) -> dict[str, str]:
        told = timeline(promo_rush().incident, (stage,))
        return {
            one.id: one.time
            for one in timeline_cloudevents.cloud_events(told)
            if one.type == "io.latdoctor.sop.deadline.v1"
        }

    open_ = StageState("mitigated", "Mitigated", 1800.0, "unmet")
    met = msgspec.structs.replace(open_, status="met")
    assert list(deadlines(open_).values()) == ["2026-11-22T07:19:00.000000Z"]
    assert deadlines(open_).keys() != deadlines(met).keys()


TYPES = {
    "alert.received", "alert.confirmed", "evidence.collected", "diagnosis.ranked", "plan.proposed", "step.applied",
    "verify.result", "sop.deadline", "note.made", "stage.marked", "notification.sent", "incident.opened",
    "incident.closed", "run.closed", "run.joined", "run.opened", "step.intended",
}  # fmt: skip


def test_what_kinds_of_events_there_are() -> None:
    assert {one.type for one in timeline_cloudevents.cloud_events(promo())} == {
        f"io.latdoctor.{name}.v1" for name in TYPES
    }
    rolled = {one.type for one in timeline_cloudevents.cloud_events(taken_back())}
    assert "io.latdoctor.rollback.v1" in rolled


SECTIONS = (
    "Overview", "What happened", "Contributing factors", "Resolution", "Impact", "Responders", "Timeline",
    "How did we do", "What was not measured", "Action items", "Messaging",
)  # fmt: skip


@pytest.mark.parametrize("story", STORIES)
def test_markdown_has_the_sections_of_a_post_mortem(story: str) -> None:
    page = timeline_report.render_markdown(STORIES[story]())
    assert tuple(re.findall(r"^## (.*)$", page, re.MULTILINE)) == SECTIONS
    assert page.count("TODO(human)") >= 10


def test_facts_are_marked_apart_from_what_is_inferred() -> None:
    page = timeline_report.render_markdown(promo())
    assert re.search(r"\*\*inference, by diagnosis d1a9\*\*: cause: Long requests run alone", page)
    assert re.search(r"\| reported by Ada \|", page)
    assert "**fact**" in page


def test_text_has_80_columns_and_no_colour() -> None:
    for story in STORIES.values():
        text = timeline_report.render_text(story())
        assert max(map(len, text.splitlines())) <= 80
        assert "\x1b" not in text


def test_the_id_of_an_incident_stands_in_every_form() -> None:
    for form in FORMS.values():
        assert ID in form(promo()).replace("\\", "")
