"""The k6 script: its scenarios keep the rates of the plan, and the text of a plan is data in it, never code."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from latdoctor.errors import UsageError
from latdoctor.load.arrivals import Arrivals, Constant, Gamma, OnOff, Poisson, Ramp, Renewal, Replay
from latdoctor.load.distributions import Quantiles
from latdoctor.load.drivers.k6_script import k6_script
from latdoctor.load.mix import Mix
from latdoctor.load.plan import LoadPhase, LoadPlan
from latdoctor.load.request_template import RequestTemplate

CASES = yaml.safe_load(Path(__file__).with_name("k6_cases.yaml").read_text())
DATA = re.compile(r"(?<=\nconst LOAD = )\{.*?\n\}(?=;\n)", re.DOTALL)


def data(script: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(DATA.findall(script)[0])
    return found


def plan(arrivals: Arrivals, seconds: float = 10.0, **others: Any) -> LoadPlan:
    return LoadPlan((LoadPhase("only", seconds, arrivals),), **others)


def scenario(arrivals: Arrivals, seconds: float) -> dict[str, Any]:
    found: dict[str, Any] = data(k6_script(plan(arrivals, seconds)))["options"]["scenarios"]["only"]
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_scenario_of_an_arrival_process(case: dict[str, Any]) -> None:
    phases = [{"name": "only", **{key: case[key] for key in ("seconds", "arrivals", "users") if key in case}}]
    load = msgspec.convert({"phases": phases, **case.get("plan", {})}, LoadPlan, strict=False)
    found = data(k6_script(load))["options"]["scenarios"]["only"]
    assert {key: found.get(key) for key in case["scenario"]} == case["scenario"]


def requests_of(found: dict[str, Any]) -> float:
    """How many iterations k6 starts: the area under the rate."""
    unit = float(found["timeUnit"].rstrip("s"))
    if found["executor"] == "constant-arrival-rate":
        return float(found["rate"] / unit * float(found["duration"].rstrip("ms")) / 1000)
    area, before = 0.0, found["startRate"]
    for stage in found["stages"]:
        area += (before + stage["target"]) / 2 / unit * float(stage["duration"].rstrip("ms")) / 1000
        before = stage["target"]
    return area


RATES = st.floats(0.5, 500)
PROCESSES = st.one_of(
    st.builds(Constant, RATES),
    st.builds(Poisson, RATES),
    st.builds(Gamma, RATES, st.floats(0.1, 5)),
    st.builds(OnOff, RATES, st.floats(0.1, 9), st.floats(0.1, 9), st.floats(0, 50), st.floats(0, 30)),
    st.builds(Ramp, RATES, RATES),
    st.builds(Replay, st.lists(st.floats(0, 60), min_size=1, max_size=50).map(tuple)),
)


@settings(max_examples=150, deadline=None)
@given(arrivals=PROCESSES, seconds=st.integers(1, 90))
def test_k6_starts_as_many_iterations_as_the_plan_expects(arrivals: Arrivals, seconds: int) -> None:
    expected = arrivals.expected(seconds)
    assert requests_of(scenario(arrivals, seconds)) == pytest.approx(expected, rel=0.01, abs=0.6)


@settings(max_examples=60, deadline=None)
@given(path=st.text(max_size=20).map(lambda text: "/" + text), body=st.text(max_size=60))
def test_what_is_sent_is_data_and_never_code(path: str, body: str) -> None:
    request = RequestTemplate(path, body, {"only": body + "!"})
    script = k6_script(plan(Poisson(5)), request=request)
    assert data(script)["path"] == path
    assert data(script)["phases"]["only"]["body"] == body + "!"
    plain = k6_script(plan(Poisson(5)), request=RequestTemplate("/", ""))
    assert DATA.sub("", script, count=1) == DATA.sub("", plain, count=1)
    assert script.isascii()


def test_the_slo_is_a_threshold_of_each_phase_and_dropped_load_fails_the_run() -> None:
    load = LoadPlan((LoadPhase("a", 2, Constant(5)), LoadPhase("b", 2, Constant(5))), slo_s=0.25)
    found = data(k6_script(load))
    assert found["slo_s"] == 0.25
    assert found["options"]["thresholds"] == {
        "good{scenario:a}": ["rate>=0.99"],
        "good{scenario:b}": ["rate>=0.99"],
        "dropped_iterations": ["count==0"],
    }
    assert [one["startTime"] for one in found["options"]["scenarios"].values()] == ["0ms", "2000ms"]


def test_rates_are_multiplied_and_the_file_says_so() -> None:
    script = k6_script(plan(Constant(500)), times=20.0)
    assert data(script)["options"]["scenarios"]["only"]["rate"] == 10_000
    assert "20.0 times those of the plan" in script


def test_a_credential_of_the_environment_is_not_in_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOAD_AUTHORIZATION", "Bearer s3cret-of-mine")
    assert "s3cret" not in k6_script(plan(Constant(5)))


@pytest.mark.parametrize(
    ("load", "times", "message"),
    [
        (plan(Constant(5), 0.5), 1.0, "at least 1 s"),
        (plan(OnOff(5, 0.001, 0.001), 60), 1.0, "shorten the phase"),
        (plan(Replay((0.0, 1.0))), 2.0, "recorded arrivals cannot be multiplied"),
    ],
    ids=["too short", "too many changes", "replay multiplied"],
)
def test_a_plan_that_k6_cannot_run_is_refused(load: LoadPlan, times: float, message: str) -> None:
    with pytest.raises(UsageError) as refused:
        k6_script(load, times=times)
    assert message in f"{refused.value} {refused.value.next_step}"


@pytest.mark.parametrize(
    ("arrivals", "mix", "said", "unsaid"),
    [
        (Constant(5), Mix(), "dropped_iterations", "evenly"),
        (Poisson(5), Mix(), "evenly", "gamma"),
        (Gamma(5, 2.0), Mix(), "gamma", "recorded"),
        (Renewal(5, Quantiles((0.0, 1.0, 4.0))), Mix(), "renewal", "gamma"),
        (Replay((0.0,)), Mix(), "recorded times", "gamma"),
        (Constant(5), Mix(sessions=3), "turns before", "evenly"),
    ],
    ids=["constant", "poisson", "gamma", "renewal", "replay", "sessions"],
)
def test_the_file_says_what_k6_does_not_keep(arrivals: Arrivals, mix: Mix, said: str, unsaid: str) -> None:
    comment = k6_script(LoadPlan((LoadPhase("only", 5, arrivals, mix),))).partition("import http")[0]
    assert said in comment
    assert unsaid not in comment
