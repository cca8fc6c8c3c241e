"""A server that is gone at the end of a look is never called healthy, however well it did before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from latdoctor.cli.collect_and_diagnose import diagnosis_of
from latdoctor.diagnosis.result import Diagnosis
from latdoctor.diagnosis.rule_loader import shipped
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.bundle_files import opened

WELL = Path(__file__).parents[2] / "fixtures" / "incidents" / "no-fault.tar.zst"
SAYS = "the server does not answer: "


def diagnosed(end: Callable[[Artifact], Artifact]) -> Diagnosis:
    """The well server, with something else for the last page of it."""
    with opened(WELL) as bundle:
        pages = sorted((one for one in bundle.artifacts if one.collector == "prometheus"), key=lambda one: one.taken_at)
        last = next(one for one in reversed(pages) if b"ref_arrivals_total" in one.read())
        artifacts = tuple(end(one) if one is last else one for one in bundle.artifacts)
        return diagnosis_of(replace(bundle, artifacts=artifacts), shipped())


def same(page: Artifact) -> Artifact:
    return page


def stopped(page: Artifact) -> Artifact:
    return replace(page, name=page.name.removesuffix(".prom") + "-stopped.prom")


def empty(page: Artifact) -> Artifact:
    return replace(page, content=b"")


def sign_in(page: Artifact) -> Artifact:
    return replace(page, content=b"<html><title>Sign in</title></html>")


def half(page: Artifact) -> Artifact:
    return replace(page, content=page.read()[: len(page.read()) // 2])


@pytest.mark.parametrize("end", [stopped, empty, sign_in])
def test_a_server_that_is_gone_at_the_end_is_critical(end: Callable[[Artifact], Artifact]) -> None:
    found = diagnosed(end)
    assert found.verdict.level == "critical"
    assert any(reason.startswith(SAYS) for reason in found.verdict.reasons)
    assert found.since is not None
    assert found.since.signal == "server.down"
    assert found.answer.causes == ()


@pytest.mark.parametrize("end", [same, half])
def test_a_server_that_answers_is_not(end: Callable[[Artifact], Artifact]) -> None:
    found = diagnosed(end)
    assert found.verdict.level == "healthy"
    assert not any("is gone from the last page" in gap.reason for gap in found.gaps)
