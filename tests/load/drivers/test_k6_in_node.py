"""What the k6 script does in each iteration: contents, attempts, endings and figures."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from latdoctor.load.arrivals import Constant, Poisson
from latdoctor.load.distributions import ConstantValue, Distribution, Exponential, Geometric, LogNormal, Quantiles
from latdoctor.load.drivers.k6_script import k6_script
from latdoctor.load.mix import Mix
from latdoctor.load.plan import LoadPhase, LoadPlan, RetryKind, RetryPolicy
from latdoctor.load.request_template import RequestTemplate
from latdoctor.load.users import Users
from tests.load.drivers.k6_in_node import OK, run_in_node

TEXTS = Mix(long_share=0, audio_share=0)


def plan(mix: Mix = TEXTS, **others: Any) -> LoadPlan:
    return LoadPlan((LoadPhase("only", 5, Constant(5), mix),), **others)


def recorded(found: dict[str, Any], metric: str) -> list[float]:
    return [one["value"] for one in found["recorded"] if one["metric"] == metric]


def test_shares_and_lengths_are_those_of_the_mix(tmp_path: Path) -> None:
    mix = Mix(long_share=0.2, audio_share=0.5, malformed_share=0.1, sessions=4)
    found = run_in_node(k6_script(plan(mix)), tmp_path, {"only": 4000})
    kinds = Counter(one["params"]["tags"]["kind"] for one in found["sent"])
    assert kinds["malformed"] / 4000 == pytest.approx(0.1, abs=0.02)
    assert kinds["long-text"] / 4000 == pytest.approx(0.09, abs=0.02)
    assert kinds["short-audio"] / 4000 == pytest.approx(0.36, abs=0.03)
    fields = [json.loads(one["body"]) for one in found["sent"] if one["params"]["tags"]["kind"] == "short-text"]
    assert {len(each["text"].split()) for each in fields} == set(range(20, 61))
    assert {each["session"] for each in fields} == {"s-0", "s-1", "s-2", "s-3"}
    audio = [json.loads(one["body"]) for one in found["sent"] if one["params"]["tags"]["kind"] == "long-audio"]
    assert all(12 <= each["audio_seconds"] <= 20 for each in audio)
    # A malformed body is refused by construction: it says nothing about the SLO.
    assert len(recorded(found, "good")) == 4000 - kinds["malformed"]


def test_the_seed_and_the_number_of_an_iteration_decide_what_it_sends(tmp_path: Path) -> None:
    first, again, other = (
        [one["body"] for one in run_in_node(k6_script(plan(Mix(), seed=seed)), tmp_path, {"only": 50})["sent"]]
        for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other
    assert len(set(first)) == 50


def test_phases_send_their_own_mix_and_request(tmp_path: Path) -> None:
    phases = (LoadPhase("a", 2, Constant(5), TEXTS), LoadPhase("constructor", 2, Constant(5), TEXTS))
    request = RequestTemplate("/predict", '{"p": "$PROMPT"}', {"a": '{"first": "$PROMPT $PROMPT"}'})
    script = k6_script(LoadPlan(phases), request=request)
    found = run_in_node(
        script, tmp_path, {"a": 3, "constructor": 3}, environment={"LOAD_TARGET": "http://127.0.0.1:1/"}
    )
    assert {one["url"] for one in found["sent"]} == {"http://127.0.0.1:1/predict"}
    names = [next(iter(json.loads(one["body"]))) for one in found["sent"]]
    assert names == ["first"] * 3 + ["p"] * 3
    assert all(20 <= len(json.loads(one["body"])["p"].split()) <= 60 for one in found["sent"][3:])


ENDINGS = [
    ({"status": 204, "ms": 20}, "answered", 1),
    ({"status": 200, "ms": 300}, "answered", 0),
    ({"status": 200, "ms": 20, "wrong": True}, "failed", 0),
    ({"status": 429, "ms": 20}, "refused", 0),
    ({"status": 503, "ms": 20}, "refused", 0),
    ({"status": 404, "ms": 20}, "rejected", 0),
    ({"status": 500, "ms": 20}, "failed", 0),
    ({"status": 0, "ms": 20, "error_code": 1212}, "failed", 0),
    ({"status": 0, "ms": 20, "error_code": 1050}, "timed_out", 0),
]


@pytest.mark.parametrize(("answer", "ending", "good"), ENDINGS, ids=lambda value: str(value) if value else "")
def test_an_answer_has_an_ending(tmp_path: Path, answer: dict[str, Any], ending: str, good: int) -> None:
    sent = answer if answer["status"] != 204 else {**answer, "wrong": False}
    found = run_in_node(k6_script(plan(slo_s=0.25)), tmp_path, {"only": 1}, [sent])
    assert recorded(found, f"requests_{ending}") == [1]
    assert [bool(value) for value in recorded(found, "good")] == [bool(good)]
    timed = [21] if ending in {"answered", "timed_out"} and answer["ms"] == 20 else recorded(found, "latency")
    assert recorded(found, "latency") == pytest.approx(timed)


def test_attempts_wait_as_the_policy_says_and_their_time_counts(tmp_path: Path) -> None:
    retry = RetryPolicy(RetryKind.BACKOFF, attempts=3, base_ms=100, max_ms=150)
    refused = {"status": 503, "ms": 20, "headers": {"Retry-After": "2"}}
    found = run_in_node(k6_script(plan(retry=retry)), tmp_path, {"only": 1}, [refused, {"status": 503, "ms": 20}, OK])
    assert [one["params"]["headers"]["X-Attempt"] for one in found["sent"]] == ["0", "1", "2"]
    assert len({one["params"]["headers"]["X-Request-Id"] for one in found["sent"]}) == 1
    assert 2 <= found["slept"] <= 2.15  # Retry-After, then a random time up to the longest
    assert recorded(found, "latency") == [pytest.approx(found["slept"] * 1000 + 3 * 21)]
    assert recorded(found, "requests_answered") == [1]


def test_the_last_attempt_counts(tmp_path: Path) -> None:
    retry = RetryPolicy(RetryKind.IMMEDIATE, attempts=2)
    found = run_in_node(k6_script(plan(retry=retry)), tmp_path, {"only": 1}, [{"status": 503, "ms": 20}])
    assert (len(found["sent"]), recorded(found, "requests_refused")) == (2, [1])


@pytest.mark.parametrize(("elapsed", "measured"), [(0.5, 0), (1.5, 10)])
def test_the_warm_up_is_sent_and_not_measured(tmp_path: Path, elapsed: float, measured: int) -> None:
    script = k6_script(plan(warm_up_s=1.0))
    found = run_in_node(script, tmp_path, {"only": 10}, since_start_s=elapsed)
    assert len(found["sent"]) == 10
    assert len(recorded(found, "latency")) == len(recorded(found, "good")) == measured


def test_iterations_of_a_poisson_phase_wait_a_random_time_that_is_no_latency(tmp_path: Path) -> None:
    load = LoadPlan((LoadPhase("only", 20, Poisson(400), TEXTS),))
    found = run_in_node(k6_script(load), tmp_path, {"only": 1000})
    assert found["slept"] / 1000 == pytest.approx(0.5 / 2, abs=0.02)
    assert recorded(found, "latency") == [21] * 1000


def talking(**others: Any) -> LoadPlan:
    users = Users(**{"turns": Geometric(3), "think_s": Exponential(2), **others})
    return LoadPlan((LoadPhase("only", 60, Poisson(2), Mix(audio_share=0), users=users),), timeout_s=5)


def test_users_send_turns_with_time_to_think_and_repeat_what_was_said(tmp_path: Path) -> None:
    found = run_in_node(k6_script(talking()), tmp_path, {"only": 2000}, function="session")
    sessions: dict[str, list[dict[str, Any]]] = {}
    for one in found["sent"]:
        fields = json.loads(one["body"])
        sessions.setdefault(fields["session"], []).append(fields)
    assert len(sessions) == 2000
    assert len(found["sent"]) / 2000 == pytest.approx(3, abs=0.2)
    assert recorded(found, "sessions_completed") == [1] * 2000
    spread = 2.0 / 2  # the random wait before the first turn, of which the mean is half the longest
    assert found["slept"] / 2000 == pytest.approx(spread + (3 - 1) * 2, abs=0.4)
    longest = max(sessions.values(), key=len)
    assert "transcript" not in longest[0]
    assert [turn.get("transcript", [])[-1:] for turn in longest[1:]] == [[turn["text"]] for turn in longest[:-1]]


def test_users_hang_up_when_their_patience_is_over(tmp_path: Path) -> None:
    script = k6_script(talking(patience_s=ConstantValue(0.5)))
    slow = {"status": 0, "error_code": 1050, "ms": 500}
    found = run_in_node(script, tmp_path, {"only": 5}, [slow], function="session")
    assert {one["params"]["timeout"] for one in found["sent"]} == {"500ms"}
    assert (len(found["sent"]), recorded(found, "sessions_abandoned_slow")) == (5, [1] * 5)


def test_users_may_leave_after_a_failure(tmp_path: Path) -> None:
    script = k6_script(talking(turns=ConstantValue(4), leave_after_failure=1.0))
    found = run_in_node(script, tmp_path, {"only": 2}, [{"status": 500, "ms": 20}], function="session")
    assert (len(found["sent"]), recorded(found, "sessions_abandoned_failed")) == (2, [1, 1])
    patient = k6_script(talking(turns=ConstantValue(4)))
    found = run_in_node(patient, tmp_path, {"only": 2}, [{"status": 500, "ms": 20}], function="session")
    assert (len(found["sent"]), recorded(found, "sessions_completed")) == (8, [1, 1])


def test_no_turn_begins_after_the_end_of_the_plan(tmp_path: Path) -> None:
    found = run_in_node(k6_script(talking()), tmp_path, {"only": 3}, since_start_s=61, function="session")
    assert (found["sent"], recorded(found, "sessions_unfinished")) == ([], [1, 1, 1])


@pytest.mark.parametrize(
    ("turns", "mean"),
    [
        (ConstantValue(4), 4),
        (Exponential(6), 6),
        (LogNormal(5, 0.5), 5.67),
        (Geometric(5), 5),
        (Quantiles((1, 3, 9)), 4),
    ],
    ids=lambda value: type(value).__name__,
)
def test_distributions_have_their_means(tmp_path: Path, turns: Distribution, mean: float) -> None:
    assert turns.mean == pytest.approx(mean, rel=0.01)
    script = k6_script(talking(turns=ConstantValue(2), think_s=turns))
    found = run_in_node(script, tmp_path, {"only": 3000}, function="session")
    assert found["slept"] / 3000 - 1.0 == pytest.approx(mean, rel=0.08)


def test_lengths_follow_the_quantiles_of_a_mix(tmp_path: Path) -> None:
    mix = Mix(audio_share=0, tokens=Quantiles((10, 20, 400)))
    found = run_in_node(k6_script(plan(mix)), tmp_path, {"only": 2000})
    lengths = sorted(len(json.loads(one["body"])["text"].split()) for one in found["sent"])
    assert (lengths[0], lengths[-1]) == (pytest.approx(10, abs=2), pytest.approx(400, abs=5))
    assert lengths[1000] == pytest.approx(20, abs=12)
    kinds = {
        (one["params"]["tags"]["kind"], len(json.loads(one["body"])["text"].split()) >= 300) for one in found["sent"]
    }
    assert kinds == {("short-text", False), ("long-text", True)}


def test_the_credential_is_read_from_the_environment(tmp_path: Path) -> None:
    script = k6_script(plan())
    with_it = run_in_node(script, tmp_path, {"only": 1}, environment={"LOAD_AUTHORIZATION": "Bearer x"})
    without = run_in_node(script, tmp_path, {"only": 1})
    assert with_it["sent"][0]["params"]["headers"]["Authorization"] == "Bearer x"
    assert "Authorization" not in without["sent"][0]["params"]["headers"]
