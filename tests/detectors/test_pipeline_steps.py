"""Steps of a pipeline are found by their times; models that only share a server are none."""

from __future__ import annotations

import pytest

from latdoctor.detectors.pipeline_steps import CALLS, QUEUE, pipeline_steps
from latdoctor.evidence.model import Evidence, Origin, Reading

LATENCY, WAIT, INFER, COUNT = "latency.mean", "queue.time.mean", "compute.infer.mean", "completion.count"


def evidence(**models: dict[str, float]) -> Evidence:
    """Readings of models on one server."""
    return Evidence(
        readings=tuple(
            Reading(signal, f"model/{name}@host", value, Origin("page"))
            for name, values in models.items()
            for signal, value in values.items()
        )
    )


def derived(of: Evidence, signal: str) -> dict[str, float]:
    """The derived values by model."""
    found = pipeline_steps(of).readings_by_signal.get(signal, ())
    return {one.subject: float(one.value) for one in found}


def test_the_whole_is_the_sum_of_its_steps() -> None:
    seen = evidence(
        whole={LATENCY: 1.0, COUNT: 50},
        prepare={LATENCY: 0.7, WAIT: 0.6, COUNT: 50},
        model={LATENCY: 0.3, WAIT: 0.01, COUNT: 50},
    )
    assert derived(seen, QUEUE) == {"model/prepare@host": pytest.approx(0.6), "model/model@host": pytest.approx(0.01)}


def test_a_step_that_runs_per_token_counts_as_often() -> None:
    seen = evidence(
        whole={LATENCY: 2.1, INFER: 2.4, COUNT: 10},
        model={LATENCY: 2.0, INFER: 2.0, COUNT: 10},
        detokenise={LATENCY: 0.006, INFER: 0.004, WAIT: 0.002, COUNT: 1000},
    )
    assert derived(seen, CALLS) == {"model/model@host": 1, "model/detokenise@host": 100}
    assert derived(seen, QUEUE)["model/detokenise@host"] == pytest.approx(100 * 0.002 / 2.1)


@pytest.mark.parametrize(
    "models",
    [
        pytest.param({"a": 1.0, "b": 0.7}, id="two-models"),
        pytest.param({"a": 1.0, "b": 0.7, "c": 0.1}, id="times-that-do-not-add-up"),
        pytest.param({"a": 1.0, "b": 0.9999, "c": 0.0001}, id="one-model-and-a-negligible-one"),
    ],
)
def test_models_that_share_a_server_are_no_pipeline(models: dict[str, float]) -> None:
    assert not pipeline_steps(evidence(**{name: {LATENCY: value} for name, value in models.items()})).readings
