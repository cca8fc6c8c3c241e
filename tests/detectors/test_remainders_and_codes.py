"""Remainders of totals, and numbers from texts of a server."""

from __future__ import annotations

import pytest

from latdoctor.detectors.derived_readings import derived_remainders, model_properties
from latdoctor.evidence.model import Evidence, Origin, Reading, Value, Window


def reading(signal: str, value: Value, end: float | None = None) -> Reading:
    return Reading(signal, "replica/0", value, Origin("page"), Window(None, end))


def test_first_attempts() -> None:
    (found,) = derived_remainders(
        Evidence(readings=(reading("arrival.rate", 200.0), reading("retry.share", 0.6)))
    ).readings
    assert (found.signal, found.value) == ("arrival.first_rate", pytest.approx(80))


@pytest.mark.parametrize(("factor", "ratio"), [(1.0, 0.0), (2.0, 0.5), (4.0, 0.75)])
def test_padding(factor: float, ratio: float) -> None:
    (found,) = derived_remainders(Evidence(readings=(reading("batch.padding_factor", factor),))).readings
    assert (found.signal, found.value) == ("batch.padding_ratio", pytest.approx(ratio))


@pytest.mark.parametrize(
    "readings",
    [
        (reading("arrival.rate", 200.0),),
        (reading("batch.padding_factor", 0.8),),
        (reading("batch.padding_factor", float("nan")),),
        (reading("batch.padding_factor", 2.0), reading("batch.padding_ratio", 0.4)),
    ],
)
def test_what_cannot_be_said_is_not_said(readings: tuple[Reading, ...]) -> None:
    assert not derived_remainders(Evidence(readings=readings)).readings


def test_the_latest_counts() -> None:
    both = (reading("batch.padding_factor", 4.0, 20.0), reading("batch.padding_factor", 2.0, 10.0))
    assert [one.value for one in derived_remainders(Evidence(readings=both)).readings] == [0.75]


@pytest.mark.parametrize(
    ("signal", "word", "expected"),
    [
        ("model.dtype", "torch.bfloat16", ("model.bits", 16.0)),
        ("model.dtype", "FP32", ("model.bits", 32.0)),
        ("model.dtype", "int8", ("model.bits", 8.0)),
        ("model.dtype", "posit", None),
        ("model.attention", "sdpa", ("model.attention_fused", 1.0)),
        ("model.attention", "naive", ("model.attention_fused", 0.0)),
        ("model.attention", "", None),
    ],
)
def test_words_of_a_model(signal: str, word: str, expected: tuple[str, float] | None) -> None:
    found = model_properties(Evidence(readings=(reading(signal, word),))).readings
    assert [(one.signal, one.value) for one in found] == ([expected] if expected else [])
