"""The metrics page of a vLLM engine (V1 names), from its counters."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from latdoctor.lab.telemetry.exposition import Page
from latdoctor.lab.telemetry.vllm import BLOCK, Counters, Engine, Histogram, Run

_WELL = 30.0  # seconds of the time when all was well
_PAST = 300  # how often they went before


def pages(rng: random.Random, engine: Engine, moments: Sequence[float], model: str) -> Iterator[bytes]:
    """The page at each of `moments`, seconds from the first, after a long past in which all was well."""
    run = Run(rng, engine)
    run.at(_WELL).age(_PAST)
    run.rate = engine.rate
    for moment in moments:
        yield page(run.at(_WELL + engine.onset + moment), model, engine.blocks)


def page(counters: Counters, model: str, blocks: int) -> bytes:
    made = Page({"engine": "0", "model_name": model})
    _state(made, counters, blocks)
    _counters(made, counters)
    for name, says, seen in _histograms(counters):
        made.histogram(f"vllm:{name}", says, seen.bounds, seen.counts, seen.total)
    return made.text()


def _state(made: Page, counters: Counters, blocks: int) -> None:
    made.single(
        "vllm:num_requests_running", "gauge", "Number of requests in model execution batches.", counters.running
    )
    made.single("vllm:num_requests_waiting", "gauge", "Number of requests waiting to be processed.", counters.waiting)
    made.single("vllm:kv_cache_usage_perc", "gauge", "KV-cache usage. 1 means 100 percent usage.", counters.usage)
    config = {
        "block_size": str(BLOCK),
        "cache_dtype": "auto",
        "enable_prefix_caching": "True",
        "gpu_memory_utilization": "0.9",
        "num_gpu_blocks": str(blocks),
    }
    made.single("vllm:cache_config_info", "gauge", "Information of the LLMEngine CacheConfig", 1.0, config)


def _counters(made: Page, counters: Counters) -> None:
    says = "Cumulative number of preemption from the engine."
    made.single("vllm:num_preemptions_total", "counter", says, float(counters.preemptions))
    says = "Number of prefill tokens processed."
    made.single("vllm:prompt_tokens_total", "counter", says, float(counters.prompt_tokens))
    says = "Number of generation tokens processed."
    made.single("vllm:generation_tokens_total", "counter", says, float(counters.output_tokens))
    says = "Prefix cache queries, in terms of number of queried tokens."
    made.single("vllm:prefix_cache_queries_total", "counter", says, float(counters.prompt_tokens))
    says = "Prefix cache hits, in terms of number of cached tokens."
    made.single("vllm:prefix_cache_hits_total", "counter", says, float(counters.prompt_tokens * 11 // 50))
    made.family("vllm:request_success_total", "counter", "Count of successfully processed requests.")
    ended = {"stop": counters.stopped, "length": counters.lengthy, "abort": counters.stopped // 9_000}
    for reason, count in ended.items():
        made.sample("vllm:request_success_total", float(count), {"finished_reason": reason})


def _histograms(counters: Counters) -> tuple[tuple[str, str, Histogram], ...]:
    return (
        ("iteration_tokens_total", "Histogram of number of tokens per engine_step.", counters.iterations),
        ("time_to_first_token_seconds", "Histogram of time to first token in seconds.", counters.ttft),
        ("inter_token_latency_seconds", "Histogram of inter-token latency in seconds.", counters.itl),
        ("e2e_request_latency_seconds", "Histogram of e2e request latency in seconds.", counters.e2e),
        ("request_queue_time_seconds", "Histogram of time spent in WAITING phase for request.", counters.queued),
        ("request_inference_time_seconds", "Histogram of time spent in RUNNING phase for request.", counters.inference),
        ("request_prompt_tokens", "Number of prefill tokens processed.", counters.prompts),
        ("request_generation_tokens", "Number of generation tokens processed.", counters.outputs),
    )
