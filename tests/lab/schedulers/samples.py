"""Requests and settings that the tests of the schedulers start from."""

from __future__ import annotations

from bench.schedulers import MEASURED_FP32
from hypothesis import strategies as st

from latdoctor.lab.server.config import BatchingConfig
from latdoctor.lab.server.schedulers import SCHEDULERS
from latdoctor.lab.server.schedulers.batch import Batch, Work

LENGTHS = st.one_of(st.integers(1, 8), st.integers(1, 600))

BATCHINGS = st.builds(
    BatchingConfig,
    scheduler=st.sampled_from(sorted(SCHEDULERS)),
    max_batch_requests=st.integers(1, 6),
    max_batch_tokens=st.sampled_from([16, 64, 400, 4096]),
    max_waste=st.sampled_from([0, 0.1, 0.3, 1]),
    age_ms=st.sampled_from([0, 50, 250, 600_000]),
    max_wait_ms=st.sampled_from([0, 10, 300]),
    adaptive_wait=st.booleans(),
    long_seconds=st.sampled_from([0.2, 15.0]),
    total_seconds=st.sampled_from([0.5, 20.0]),
    buckets=st.sampled_from([(64, 128, 256, 384, 512), (4, 300)]),
    size_by_complexity=st.booleans(),
)


def works(*lengths: int, apart: float = 0.0) -> list[Work]:
    """Requests of these lengths, numbered from 0, that arrive `apart` seconds from one another."""
    return [Work(number, tokens, number * apart) for number, tokens in enumerate(lengths)]


def batch(*lengths: int) -> Batch:
    return Batch(tuple(works(*lengths)), "idle")


def seconds(computed: Batch) -> float:
    """What the reference model takes for it."""
    return MEASURED_FP32.seconds(computed.size, computed.padded_tokens // computed.size)
