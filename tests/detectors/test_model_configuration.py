"""Configurations join the measurements of their model, and instances give the share of time in which they compute."""

from __future__ import annotations

import pytest

from latdoctor.detectors.model_configuration import model_configurations
from latdoctor.evidence.model import Evidence, Origin, Reading

PAGE, FILE = Origin("prometheus/1.prom"), Origin("documents/intent.json")


def measured(subject: str, rate: float = 4.0, seconds: float = 0.05) -> tuple[Reading, ...]:
    return (Reading("forward.rate", subject, rate, PAGE), Reading("compute.time.mean", subject, seconds, PAGE))


def configured(subject: str, instances: float = 2.0) -> tuple[Reading, ...]:
    return (
        Reading("config.instances", subject, instances, FILE),
        Reading("config.queue_delay", subject, 0.6, FILE),
    )


def derived(*readings: Reading) -> dict[tuple[str, str], object]:
    found = model_configurations(Evidence(readings=readings))
    return {(one.subject, one.signal): one.value for one in found.readings}


def test_a_saved_configuration_is_that_of_the_one_measured_model_of_its_name() -> None:
    found = derived(
        *measured("model/intent@page"), *measured("model/other@page"), *configured("model/intent@intent.json")
    )
    assert found["model/intent@page", "config.queue_delay"] == 0.6
    assert found["model/intent@page", "forward.utilization"] == pytest.approx(0.1)
    assert not [subject for subject, _ in found if subject == "model/other@page"]


def test_a_saved_configuration_of_two_measured_models_is_that_of_neither() -> None:
    assert (
        derived(*measured("model/intent@a"), *measured("model/intent@b"), *configured("model/intent@intent.json")) == {}
    )


def test_the_share_is_never_more_than_all_of_the_time() -> None:
    found = derived(*measured("model/intent@a", rate=30.0, seconds=0.08), *configured("model/intent@a"))
    assert found == {("model/intent@a", "forward.utilization"): 1.0}


def test_a_share_that_the_server_reports_is_kept() -> None:
    own = Reading("forward.utilization", "model/intent@a", 0.42, PAGE)
    assert derived(own, *measured("model/intent@a"), *configured("model/intent@a")) == {}


def test_without_instances_no_share_is_known() -> None:
    assert derived(*measured("model/intent@a"), *configured("model/intent@a", instances=0.0)) == {}
