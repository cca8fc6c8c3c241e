"""What changes between the pages of one server is an event with the time of the page."""

from __future__ import annotations

from latdoctor.collectors.prometheus import exposition
from latdoctor.dialects.loader import shipped
from latdoctor.dialects.metrics_page_model import ScrapedPage
from latdoctor.dialects.to_evidence import read_pages
from latdoctor.evidence.model import Event

REFERENCE = next(dialect for dialect in shipped() if dialect.id == "reference")


def events(*pages: str) -> tuple[Event, ...]:
    scrapes = [
        ScrapedPage(exposition.parse(page.encode(), "x"), f"page-{n}", 1000.0 + 10 * n) for n, page in enumerate(pages)
    ]
    return read_pages(REFERENCE, scrapes, "server/x").events


def info(version: str, replica: str = "0") -> str:
    return f'ref_info{{replica="{replica}",model_version="{version}",dtype="fp32",version="1"}} 1\n'


def test_a_new_model_version_is_an_event() -> None:
    (event,) = events(info("v6"), info("v6"), info("v7"), info("v7"))
    assert (event.signal, event.subject, event.time) == ("change.model", "replica/0@x", 1020.0)
    assert event.fields == {"what": "model version", "from": "v6", "to": "v7"}
    assert event.origin.artifact == "page-2"


def test_what_stays_is_none_and_replicas_are_kept_apart() -> None:
    assert not events(info("v6"), info("v6"))
    both = info("v6", "0") + info("v7", "1")
    assert not events(both, both)
    assert not events(info("v6"))


def test_a_page_with_both_versions_is_a_rollout_on_its_way() -> None:
    assert [event.time for event in events(info("v6"), info("v6") + info("v7"), info("v7"))] == [1020.0]


def test_a_version_that_begins_to_answer_is_an_event() -> None:
    def page(*versions: str) -> str:
        name = "ref_latency_by_version_seconds"
        return "".join(
            f'{name}_bucket{{replica="0",model_version="{one}",le="+Inf"}} 5\n'
            f'{name}_count{{replica="0",model_version="{one}"}} 5\n'
            for one in versions
        )

    (event,) = events(page("v6"), page("v6"), page("v6", "v7"))
    assert (event.signal, event.time, event.fields["to"]) == ("change.model", 1020.0, "v7")


def test_a_process_that_started_is_an_event_once() -> None:
    page = info("v6") + "process_start_time_seconds 1769827740\n"
    later = info("v6") + "process_start_time_seconds 1769827800\n"
    assert [event.time for event in events(page, page, later)] == [1769827740.0, 1769827800.0]
    assert not events("process_start_time_seconds NaN\n", "process_start_time_seconds 7\n")
