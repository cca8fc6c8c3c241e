"""`latdoctor remediate --from forecast.json`: what is refused, and on a router whose replicas are real."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from latdoctor.planning.forecast.result import Forecast, Method, NoForecast
from tests.cli.running import run
from tests.planning.test_standby_basis import GOOD, scored


@pytest.fixture(autouse=True)
def _apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LATDOCTOR_STATE", str(tmp_path / "state"))


def written(**changed: Any) -> str:
    found: Forecast = msgspec.structs.replace(GOOD, **{"at": time.time() + 900, **changed})
    Path("forecast.json").write_bytes(msgspec.json.encode(found))
    return "forecast.json"


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "none": ({"no_forecast": NoForecast.SHORT}, "there is no forecast: the history is too short"),
    "stale history": ({"no_forecast": NoForecast.STALE}, "there is no forecast: the history ended so long ago"),
    "past": ({"at": 1_700_000_000.0}, "which is past"),
    "last value": ({"method": Method.LAST_VALUE}, "no method was better than the last value"),
    "not better": ({"methods": (scored(Method.ETS, 1.0),)}, "no method was better than the last value"),
    "misses": ({"coverage": 0.5}, "only 50% of the rates were within the .9 quantile"),
}


@pytest.mark.parametrize(("changed", "words"), REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("more", [[], ["--apply", "--yes"]], ids=["plan", "apply"])
def test_a_forecast_that_is_no_basis_is_refused(changed: dict[str, Any], words: str, more: list[str]) -> None:
    outcome = run(["remediate", "--from", written(**changed), "--server", "http://127.0.0.1:9", "-o", "json", *more])
    (result,) = json.loads(outcome.out)["results"]
    assert (outcome.code, result["outcome"]) == (5, "refused")
    assert words in result["reason"]
    assert result["next_step"]


def test_a_forecast_without_a_number_of_replicas_is_a_usage_error() -> None:
    outcome = run(["remediate", "--from", written(plan=None)])
    assert outcome.code == 2
    assert "--per-replica" in outcome.err


def test_a_playbook_of_a_forecast_needs_one_and_others_take_none() -> None:
    outcome = run(["remediate", "--playbook", "app.scale.standby", "--kube", "prod/chat"])
    assert (outcome.code, "needs a forecast" in outcome.err) == (2, True)
    outcome = run(["remediate", "--playbook", "app.scale.out", "--from", written()])
    assert (outcome.code, "answers an incident" in outcome.err) == (2, True)


def test_the_forecast_prints_the_command_that_starts_the_replicas(tmp_path: Path) -> None:
    from latdoctor.report.forecast import render_text

    text = render_text(GOOD)
    assert "latdoctor remediate --from forecast.json --apply" in text
    naive = render_text(msgspec.structs.replace(GOOD, method=Method.LAST_VALUE))
    assert "no rise is foreseen" in naive
    assert "--set replicas=4" in naive
    enough = msgspec.structs.replace(GOOD, plan=msgspec.structs.replace(GOOD.plan, start=0))
    assert "remediate" not in render_text(enough)
