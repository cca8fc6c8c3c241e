"""The page holds every name that the dialect, the rules and the lab's own tables read."""

from __future__ import annotations

import re
import socket
import time
from itertools import pairwise

import pytest
from prometheus_client.parser import text_string_to_metric_families

from latdoctor.lab.server.config import QueueConfig, ServerConfig
from tests.lab.server.running_server import Running

NAMES = """
ref_info ref_start_time_seconds ref_requests_total ref_arrivals_total ref_retry_arrivals_total ref_request_seconds
ref_queue_wait_seconds ref_preprocess_seconds ref_session_seconds ref_dependency_seconds ref_forward_seconds
ref_postprocess_seconds ref_lock_wait_seconds ref_queue_depth ref_queue_tokens ref_queue_oldest_age_seconds
ref_batch_size ref_batch_tokens ref_batch_padded_tokens ref_batch_release_total ref_forward_calls_total
ref_tokens_total ref_padded_tokens_total ref_alone_batches_total ref_alone_tokens_total
ref_shared_batch_longest_tokens ref_input_tokens
ref_long_inputs_total ref_requests_shed_total ref_requests_cancelled_total ref_rejected_total ref_fallback_total
ref_breaker_open ref_standby_requests_total ref_device_alloc_total ref_device_free_total ref_device_segments
ref_reserved_bytes ref_allocated_bytes ref_inactive_split_bytes ref_largest_free_bytes ref_fragmentation_ratio
ref_inactive_ratio ref_alloc_retries_total ref_alloc_oom_total ref_alloc_seconds_total ref_page_faults_total
ref_compactions_total ref_compaction_seconds_total ref_worker_cpu_seconds_total ref_worker_busy_seconds_total
ref_worker_involuntary_switches_total ref_process_cpu_seconds_total
ref_process_threads ref_torch_threads ref_rss_bytes ref_uptime_seconds
ref_gc_pause_seconds ref_loop_lag_seconds ref_compiles_total ref_compile_seconds_total ref_sessions
ref_session_hits_total ref_session_misses_total ref_session_history_tokens ref_dependency_hits_total
ref_dependency_errors_total ref_worker_restarts_total ref_latency_by_version_seconds ref_latency_by_size_seconds
ref_body_seconds ref_dependency_timeouts_total ref_model_version_changes_total ref_session_trimmed_turns_total
ref_alloc_limit_bytes ref_session_lookups_total ref_session_stale_total ref_session_store_errors_total
ref_session_store_skipped_total ref_session_superseded_total ref_session_store_seconds
ref_session_store_lost_writes_total ref_session_store_read_bytes_total
ref_session_store_written_bytes_total ref_session_store_whole_bytes_total
ref_answer_cache_lookups_total ref_answer_cache_checked_total ref_answer_cache_wrong_total
ref_answer_cache_saved_seconds_total ref_answer_cache_entries ref_answer_cache_bytes
ref_session_reused_tokens_total ref_session_recomputed_tokens_total ref_session_store_breaker_open
ref_model_reloads_total ref_model_reloads_refused_total ref_model_load_seconds
ref_features_trimmed_total ref_control_mode ref_control_measurement_age_seconds ref_control_p99_seconds
ref_control_objective_seconds ref_control_missed_ratio ref_control_blind ref_control_knob ref_control_steps_total
ref_control_verdicts_total ref_control_holds_total ref_control_reversals_total
""".split()  # noqa: SIM905 - as one reads it
OWN_LABELS = {
    "ref_info": {"version", "dtype", "attention", "model_version", "model_checksum"},
    "ref_requests_total": {"status"},
    "ref_queue_wait_seconds": {"lane"},
    "ref_batch_release_total": {"reason"},
    "ref_requests_shed_total": {"reason"},
    "ref_rejected_total": {"reason"},
    "ref_model_reloads_refused_total": {"reason"},
    "ref_worker_cpu_seconds_total": {"mode"},
    "ref_latency_by_version_seconds": {"model_version"},
    "ref_latency_by_size_seconds": {"size"},
    "ref_session_lookups_total": {"level"},
    "ref_answer_cache_lookups_total": {"result"},
    "ref_session_stale_total": {"level"},
    "ref_session_store_errors_total": {"reason"},
    "ref_control_knob": {"knob"},
    "ref_control_steps_total": {"reason"},
    "ref_control_verdicts_total": {"verdict"},
    "ref_control_holds_total": {"reason"},
}


@pytest.fixture(scope="module")
def page() -> str:
    with Running() as server:
        assert server.ask(text="one two three", session="s").status_code == 200
        assert server.ask(text="four", session="s", attempt=1).status_code == 200
        server.until(lambda: server.page().get(("ref_torch_threads", ""), 0) == 1)
        return server.client.get("/metrics").text


def test_holds_exactly_the_names_that_were_agreed(page: str) -> None:
    families = {
        family.name + ("_total" if family.type == "counter" else ""): family
        for family in text_string_to_metric_families(page)
    }
    assert sorted(families) == sorted(NAMES)
    assert [name for name, family in families.items() if not family.samples] == []


def test_every_sample_has_replica_and_backend_and_no_extra_label(page: str) -> None:
    for family in text_string_to_metric_families(page):
        name = family.name + ("_total" if family.type == "counter" else "")
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == {"replica", "backend", *OWN_LABELS.get(name, ())}
            assert (sample.labels["replica"], sample.labels["backend"]) == ("r1", "cpu")


def test_seconds_are_bucketed_finely_enough_up_to_a_minute(page: str) -> None:
    bounds = [float(bound) for bound in re.findall(r'ref_request_seconds_bucket\{[^}]*le="([0-9.e-]+)"', page)]
    assert bounds[0] == 0.0005
    assert 40 <= bounds[-1] <= 62
    assert all(later / earlier <= 1.51 for earlier, later in pairwise(bounds))


def test_batch_sizes_up_to_32_have_a_bucket_each(page: str) -> None:
    bounds = [float(bound) for bound in re.findall(r'ref_batch_size_bucket\{[^}]*le="([0-9.e-]+)"', page)]
    assert bounds == [*range(1, 33), 48, 64, 128]


def test_nothing_on_the_page_names_a_rule(page: str) -> None:
    assert re.findall("long-alone|count-only|token-budget|duration-bounded|length-bucket|no-timer|inject", page) == []


def test_what_happened_is_counted() -> None:
    with Running() as server:
        answers = [server.ask(text="one two", session="s"), server.ask(text="three", session="s", attempt=1)]
        assert [answer.status_code for answer in answers] == [200, 200]
        page = server.page()
    expected = {
        "ref_arrivals_total": 2,
        "ref_retry_arrivals_total": 1,
        "ref_request_seconds_count": 2,
        "ref_forward_calls_total": 2,
        "ref_tokens_total": 2 + (2 + 1 + 1),  # the second turn: its history, a separator, itself
        "ref_alone_batches_total": 2,
        "ref_session_hits_total": 1,
        "ref_session_misses_total": 1,
        "ref_session_history_tokens_sum": 2,
        "ref_input_tokens_sum": 3,
        "ref_sessions": 1,
        "ref_dependency_seconds_count": 0,
        "ref_session_seconds_count": 2,
        "ref_queue_depth": 0,
        "ref_worker_restarts_total": 0,
        "ref_compiles_total": 2,
        "ref_reserved_bytes": 64,
    }
    assert {name: page[(name, "")] for name in expected} == expected
    assert page[("ref_requests_total", "200")] == 2
    assert page[("ref_batch_release_total", "idle")] == 2


def test_input_tokens_are_those_that_arrive_answered_or_not() -> None:
    with Running(ServerConfig(queue=QueueConfig(max_requests=1))) as server:
        server.model.gate.clear()
        asked = [server.asking(text="computed")]
        server.model.until_entered()
        asked.append(server.asking(text="waits"))
        server.until(lambda: server.page()[("ref_queue_depth", "")] == 1)
        assert server.ask(text="is turned away").status_code == 503
        page = server.page()
        server.model.gate.set()
        assert [one.answer().status_code for one in asked] == [200, 200]
    assert (page[("ref_input_tokens_count", "")], page[("ref_input_tokens_sum", "")]) == (3, 1 + 1 + 3)
    assert page[("ref_requests_total", "200")] == 0


def test_a_body_that_comes_slowly_is_no_time_of_the_server() -> None:
    content = b'{"text": "one two"}'
    with Running() as server, socket.create_connection(("127.0.0.1", server.port), timeout=30) as raw:
        raw.sendall(b"POST /v1/intent HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(content))
        server.until(lambda: server.page()[("ref_arrivals_total", "")] == 1)
        arrived = time.monotonic()
        server.page()  # some time passes
        whole = time.monotonic()
        raw.sendall(content)
        assert b" 200 " in raw.recv(4096)
        answered = time.monotonic()
        page = server.page()
    assert page[("ref_body_seconds_sum", "")] >= whole - arrived
    assert page[("ref_request_seconds_sum", "")] <= answered - whole
    assert page[("ref_body_seconds_count", "")] == 1


def test_latency_is_recorded_by_body_size() -> None:
    with Running() as server:
        assert [server.ask(text="word " * count).status_code for count in (1, 2, 400)] == [200] * 3
        page = server.page()
    assert page[("ref_latency_by_size_seconds_count", "small")] == 2
    assert page[("ref_latency_by_size_seconds_count", "large")] == 1
    assert page[("ref_latency_by_size_seconds_sum", "large")] <= page[("ref_request_seconds_sum", "")]
