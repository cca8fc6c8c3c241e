"""A sample says what was seen, in how many seconds, and nothing that was not."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from latdoctor import case_from_bundle
from latdoctor.evidence.bundle import Artifact, Bundle, Context
from latdoctor.evidence.model import Window
from latdoctor.incident.events import ServiceSampled
from latdoctor.incident.slo_samples import sample_of, with_previous_pages

SERVER = "http://127.0.0.1:8002/metrics"
REPLICA = "replica/0@127.0.0.1:8002"
BOUNDS = ("0.25", "0.5", "1", "+Inf")


def page(at: float, *, fast: int, slow: int = 0, very: int = 0, waiting: int = 0, failed: int = 0) -> bytes:
    """A reference server's page: answers within 250 ms, within 1 s, and later."""
    labels = 'replica="0",backend="cpu"'
    counts = (fast, fast, fast + slow, fast + slow + very)
    lines = [f'ref_request_seconds_bucket{{{labels},le="{b}"}} {n}' for b, n in zip(BOUNDS, counts, strict=True)]
    lines += [
        f"ref_request_seconds_count{{{labels}}} {counts[-1]}",
        f"ref_request_seconds_sum{{{labels}}} {counts[-1] * 0.2}",
        f"ref_arrivals_total{{{labels}}} {counts[-1] + failed}",
        f'ref_requests_total{{{labels},status="200"}} {counts[-1]}',
        f'ref_requests_total{{{labels},status="503"}} {failed}',
        f"ref_queue_depth{{{labels}}} {waiting}",
        f"ref_rss_bytes{{{labels}}} 1000",
    ]
    return ("\n".join(lines) + "\n").encode()


def look(pages: Mapping[float, bytes], source: str = SERVER, group: str = "1-127.0.0.1_8002") -> Bundle:
    artifacts = tuple(
        Artifact(f"prometheus/{group}-{number:02d}.prom", "prometheus", group, source, at, content)
        for number, (at, content) in enumerate(pages.items())
    )
    return Bundle(Context("shop", 0.5), Window(min(pages), max(pages)), artifacts)


def sampled(bundle: Bundle, slo: float | None = 0.5) -> ServiceSampled:
    return sample_of(case_from_bundle.seen(bundle)[0], bundle.window, slo)


def test_sample_contains_charted_signals() -> None:
    told = sampled(look({0.0: page(0, fast=100), 10.0: page(10, fast=1000, slow=100, waiting=4, failed=10)}))
    assert told.seconds == 10
    assert (told.requests, told.over_slo, told.over_slo_between, told.slo_p99) == (1000, 100, None, 0.5)
    values = told.values[REPLICA]
    assert values["arrival.rate"] == 101
    assert values["queue.depth"] == 2
    assert values["error.ratio"] == pytest.approx(10 / 1010)
    assert 0.5 < values["latency.p99"] <= 1
    assert values["server.rss"] == 1000
    assert told.bounds == {}


def test_sample_continues_where_the_previous_one_ended() -> None:
    before = look({0.0: page(0, fast=100), 10.0: page(10, fast=200)})
    after = look({12.0: page(12, fast=260), 22.0: page(22, fast=400)})
    whole = with_previous_pages(after, before)
    told = sampled(whole)
    assert (told.seconds, told.requests) == (12, 200)
    assert sampled(before).requests == 100
    assert with_previous_pages(after, None) is after


def test_removed_server_is_not_continued() -> None:
    before = look({0.0: page(0, fast=100), 10.0: page(10, fast=200)}, "http://127.0.0.1:8003/metrics", "1-other")
    after = look({12.0: page(12, fast=260), 22.0: page(22, fast=400)})
    assert sampled(with_previous_pages(after, before)).requests == 140


def test_a_counter_that_was_set_back_is_unknown() -> None:
    before = look({0.0: page(0, fast=100), 10.0: page(10, fast=200)})
    told = sampled(with_previous_pages(look({12.0: page(12, fast=5), 22.0: page(22, fast=50, waiting=2)}), before))
    assert (told.requests, told.over_slo) == (None, None)
    assert "latency.p99" not in told.values[REPLICA]
    assert told.values[REPLICA]["queue.depth"] > 0


def test_one_unread_server_makes_the_sum_unknown() -> None:
    one = look({0.0: page(0, fast=100), 10.0: page(10, fast=200)})
    other = look({0.0: page(0, fast=500), 10.0: page(10, fast=7)}, "http://127.0.0.1:8003/metrics", "2-other")
    both = Bundle(one.context, one.window, (*one.artifacts, *other.artifacts))
    assert sampled(both).requests is None


def test_no_requests() -> None:
    told = sampled(look({0.0: page(0, fast=100), 10.0: page(10, fast=100)}))
    assert (told.requests, told.over_slo) == (0, 0)


def test_slo_within_a_bucket_gives_bounds() -> None:
    bundle = look({0.0: page(0, fast=100), 10.0: page(10, fast=1000, slow=100, very=7)})
    told = sampled(bundle, 0.8)
    assert (told.requests, told.over_slo, told.over_slo_between) == (1007, None, (7, 107))
    assert sampled(bundle, None).over_slo is None
    assert sampled(bundle, 0.3).over_slo == 107, "the bucket around it is empty"


def test_bound_is_recorded() -> None:
    told = sampled(look({0.0: page(0, fast=100), 10.0: page(10, fast=100, very=1000)}))
    assert told.values[REPLICA]["latency.p99"] == pytest.approx(1)
    assert told.bounds[REPLICA]["latency.p99"] == "at least"


def test_no_evidence_gives_no_values() -> None:
    empty = Bundle(Context("shop", 0.5), Window(0.0, 10.0), ())
    assert sampled(empty) == ServiceSampled(10.0, {}, slo_p99=0.5)
