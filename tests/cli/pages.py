"""Metrics pages of a made Triton server, which count on from scrape to scrape."""

from __future__ import annotations

from collections.abc import Callable


def triton(requests: int, *, seconds_each: float = 0.2, waiting: int = 0, p99_us: int = 420_000) -> bytes:
    """A page after `requests` requests of one model, each answered alone after `seconds_each`."""
    total_us = round(requests * seconds_each * 1e6)
    labels = '{model="intent",version="1"}'
    quantile = 'nv_inference_request_summary_us{model="intent",version="1",quantile="0.99"}'
    lines = [
        f"nv_inference_request_success{labels} {requests}",
        f"nv_inference_request_failure{labels} 0",
        f"nv_inference_count{labels} {requests}",
        f"nv_inference_exec_count{labels} {requests}",
        f"nv_inference_request_duration_us{labels} {total_us}",
        f"nv_inference_queue_duration_us{labels} {total_us // 2}",
        f"nv_inference_compute_input_duration_us{labels} 0",
        f"nv_inference_compute_infer_duration_us{labels} {total_us // 2}",
        f"nv_inference_compute_output_duration_us{labels} 0",
        f"nv_inference_pending_request_count{labels} {waiting}",
        f"{quantile} {p99_us}",
        f"nv_inference_request_summary_us_count{labels} {requests}",
        f"nv_inference_request_summary_us_sum{labels} {total_us}",
    ]
    return ("\n".join(lines) + "\n").encode()


def counting(start: int = 81_000, step: int = 400) -> Callable[[], bytes]:
    """A page that has counted `step` requests more each time it is asked for."""
    counted = start

    def body() -> bytes:
        nonlocal counted
        counted += step
        return triton(counted, waiting=4)

    return body
