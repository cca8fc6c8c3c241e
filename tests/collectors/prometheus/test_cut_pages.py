"""Pages that were cut, or may have been: half a line is told, and half a number is never a sure one."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from latdoctor.collectors.base import CollectRequest
from latdoctor.collectors.prometheus import COLLECTOR
from latdoctor.collectors.prometheus.exposition import parse
from latdoctor.evidence.model import Evidence
from tests.collectors.prometheus.serving import FakeClock, served
from tests.collectors.prometheus.test_saved_pages import FIRST, read

PENDING = 'nv_inference_pending_request_count{model="m",version="1"}'
HALF = "its last number may be truncated"


def page(folder: Path, name: str, text: str) -> Path:
    path = folder / f"{name}.prom"
    path.write_text(text, encoding="utf-8")
    return path


def notes(seen: Evidence) -> dict[str, str]:
    return {one.signal: one.note for one in (*seen.readings, *seen.distributions)}


@pytest.mark.parametrize(
    ("end", "unended", "cut"),
    [
        ("a 12\n", False, False),
        ("a 12\n\n  ", False, False),
        ("a 1\n# EOF", False, False),
        ("a 1\n# EOF\n", False, False),
        ("a 12", True, False),
        ('a 1\nb{c="', True, True),
        ("a 1\nb", True, True),
        ("a 1\nb ", True, True),
        ("a 1\n# HELP b half a sen", True, True),
        ("a 1\r\n", False, False),
        ('a 1\nb{c="' + "x" * 9000, True, True),
    ],
)
def test_the_end_of_a_page_shows_whether_it_is_truncated(end: str, unended: bool, cut: bool) -> None:
    found = parse(end.encode(), "p")
    assert (found.unended is not None, found.cut) == (unended, cut)


def test_a_truncated_line_is_reported_with_all_that_may_be_missing(tmp_path: Path) -> None:
    seen = read(page(tmp_path, "half", FIRST + 'nv_inference_queue_duration_us{model="m",ver'))
    (told,) = (gap for gap in seen.gaps if "could not be read" in gap.reason)
    assert told.reason == "half.prom: line 6 could not be read; the page is truncated there"
    (missing,) = seen.gaps_by_signal["queue.depth"]
    assert missing.reason.startswith("Triton: not on the page, which is truncated: nv_")
    assert missing.next_step == "fetch the page again"
    assert HALF not in str(notes(seen))


def test_what_a_whole_page_lacks_is_not_exported_though_another_page_was_cut(tmp_path: Path) -> None:
    paths = page(tmp_path, "a", FIRST + "nv_inference_queue_dur"), page(tmp_path, "b", FIRST)
    (missing,) = read(*paths).gaps_by_signal["queue.depth"]
    assert missing.reason.startswith("Triton: not exported")


def test_of_a_page_read_whole_what_is_absent_is_not_exported(tmp_path: Path) -> None:
    (missing,) = read(page(tmp_path, "whole", FIRST)).gaps_by_signal["queue.depth"]
    assert missing.reason.startswith("Triton: not exported: nv_")


def test_a_number_that_may_be_half_a_number_says_so_and_no_other_does(tmp_path: Path) -> None:
    seen = read(page(tmp_path, "bare", f"{FIRST}{PENDING} 12"))
    said = notes(seen)
    assert HALF in said.pop("queue.depth")
    assert HALF in said.pop("queue.most")
    assert not any(HALF in note for note in said.values())
    (told,) = (gap for gap in seen.gaps if "no newline" in gap.reason)
    assert told.reason == f"bare.prom: no newline at the end, so it may be truncated: {HALF}"
    assert "queue.depth" in told.signals
    assert "latency.mean" not in told.signals
    assert str(told.origin) == "prometheus/saved-1-bare.prom (line 6)"


def test_several_pages_without_a_last_newline_are_one_gap(tmp_path: Path) -> None:
    paths = [page(tmp_path, name, f"{FIRST}{PENDING} {n}") for n, name in enumerate("abc")]
    (told,) = (gap for gap in read(*paths).gaps if "no newline" in gap.reason)
    assert told.reason.startswith("a.prom, b.prom, c.prom: no newline")


@pytest.mark.parametrize(
    "end", ["python_gc_objects_collected_total 12", f"{PENDING} 12\n", "# EOF", '{"a.quoted.name"} 1']
)
def test_no_gap_without_a_doubtful_signal(end: str, tmp_path: Path) -> None:
    seen = read(page(tmp_path, "quiet", FIRST + end))
    assert not [gap for gap in seen.gaps if "newline" in gap.reason or "cut" in gap.reason]
    assert HALF not in str(notes(seen))


def test_a_counter_cut_to_fewer_digits_is_not_called_a_restart_for_sure(tmp_path: Path) -> None:
    text = 'nv_inference_request_success{model="m"} 5\nnv_inference_request_duration_us{model="m"} 1000000\n'
    whole, cut = page(tmp_path, "a", text), page(tmp_path, "b", text[:-4])
    (went_back,) = (gap for gap in read(whole, cut).gaps_by_signal["latency.mean"] if "decreased" in gap.reason)
    assert went_back.reason.endswith("or a page was truncated within this number")


@pytest.mark.parametrize(("length_told", "doubted"), [(True, False), (False, True)])
def test_a_missing_newline_is_doubtful_only_without_an_http_length(length_told: bool, doubted: bool) -> None:
    body = f"{FIRST}{PENDING} 12".encode()

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        if length_told:
            handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    with served(answer) as url:
        collected = COLLECTOR.collect(CollectRequest(servers=(url,)), FakeClock())
    seen = COLLECTOR.parse(collected.artifacts)
    assert [one.value for one in seen.readings if one.signal == "queue.depth"] == [12.0]
    assert (HALF in notes(seen)["queue.depth"]) is doubted
    assert any("no newline" in gap.reason for gap in seen.gaps) is doubted
