"""What the peers are given of a page: each series under its own name, and nothing that is joined from two."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from latdoctor.evaluation.baselines.inputs import by_metric, scraped
from latdoctor.evaluation.baselines.methods import is_latency, signal_of
from latdoctor.evaluation.store import RecordingStore, recordings
from tests.evaluation import samples

PAGE = """# TYPE ref_arrivals_total counter
ref_arrivals_total{{replica="0"}} {count}
# TYPE ref_restarted_total counter
ref_restarted_total {left}
# TYPE ref_queue_depth gauge
ref_queue_depth{{replica="0"}} {count}
undeclared 3
# TYPE ref_queue_wait_seconds histogram
ref_queue_wait_seconds_bucket{{le="+Inf"}} {count}
ref_queue_wait_seconds_sum {count}
ref_queue_wait_seconds_count {half}
# TYPE ref_request_seconds histogram
ref_request_seconds_sum {count}
ref_request_seconds_count {half}
# TYPE ref_never_seconds histogram
ref_never_seconds_sum 0
ref_never_seconds_count 0
"""
TARGET = "http://127.0.0.1:1/metrics"
EXPECTED = {
    f"ref_arrivals_total {TARGET}{{replica=0}}": 10.0,  # per second
    f"ref_queue_depth {TARGET}{{replica=0}}": None,  # as it stands
    f"undeclared {TARGET}{{}}": 3.0,
    f"ref_queue_wait_seconds {TARGET}{{}}": 2.0,  # the mean of those between two pages
    f"ref_queue_wait_seconds_count {TARGET}{{}}": 5.0,
    f"latency.mean {TARGET}{{}}": 2.0,  # what is to be explained
    f"ref_request_seconds_count {TARGET}{{}}": 5.0,
    f"ref_never_seconds_count {TARGET}{{}}": 0.0,  # and no mean of nothing
}


@pytest.fixture(scope="module")
def columns(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    folder = tmp_path_factory.mktemp("recordings")
    attempt = samples.attempt("x")
    pages = tuple(
        samples.page(
            number, samples.START + number, body=PAGE.format(count=10 * number, half=5 * number, left=50 - number)
        )
        for number in range(21)
    )
    RecordingStore(folder).keep(replace(attempt, bundle=replace(attempt.bundle, artifacts=pages)))
    (recorded,) = recordings(Path(folder))
    return dict(scraped(recorded))


def test_each_series_stands_under_its_own_name(columns: dict[str, tuple[np.ndarray, np.ndarray]]) -> None:
    assert columns.keys() == EXPECTED.keys()
    for name, value in EXPECTED.items():
        whole = np.concatenate(columns[name])
        assert len(whole) == 6 + 8
        if value is not None:
            np.testing.assert_allclose(whole, value, rtol=1e-6)
    depth = np.concatenate(columns[f"ref_queue_depth {TARGET}{{replica=0}}"])
    assert (np.diff(depth) > 0).all()


def test_only_times_of_whole_requests_are_latencies(columns: dict[str, tuple[np.ndarray, np.ndarray]]) -> None:
    assert {signal_of(name) for name in columns if is_latency(name)} == {"latency.mean"}


def test_prior_of_signals_is_transferred_to_their_metrics() -> None:
    said = by_metric(
        {
            "lock.waiting": {"a": 1.0},
            "alloc.device_per_allocation": {"b": 0.5, "c": 0.5},  # of two metrics
            "queue.time.p99": {"d": 1.0},  # of a histogram
            "client.excess.mean": {"e": 1.0},  # of a client's metric and a server's
            "process.threads_per_cpu": {"f": 1.0},  # of the host's files
        }
    )
    assert said["ref_queue_wait_seconds"] == {"d": 1.0}
    assert "ref_queue_wait_seconds_count" not in said  # what it is divided by
    assert said["process.threads_per_cpu"] == {"f": 1.0}
    assert all(abs(sum(shares.values()) - 1) < 1e-9 for shares in said.values())
    speaks = {cause for shares in said.values() for cause in shares}
    assert speaks == {"a", "b", "c", "d", "e", "f"}
