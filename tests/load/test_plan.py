"""The schedule: fixed by the seed, within its bounds, with the rates and shares that were asked for."""

from __future__ import annotations

import itertools
import json
import statistics
from pathlib import Path
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latdoctor.errors import DefinitionError, UsageError
from latdoctor.lab.server.intent_request import MAX_BODY_BYTES
from latdoctor.load import plan as plans
from latdoctor.load.arrivals import Arrivals, Constant, Gamma, OnOff, Poisson, Ramp, Replay
from latdoctor.load.mix import MALFORMED, MOST_TURNS, MOST_WORDS, Mix, RequestContent, body, draw
from latdoctor.load.plan import MAX_REQUESTS, LoadPhase, LoadPlan, digest, schedule

ARRIVALS: list[Arrivals] = [
    Constant(50),
    Poisson(50),
    Gamma(50, 3),
    Gamma(50, 0.3),
    OnOff(200, 1, 3, 10),
    OnOff(200, 1, 3),
    OnOff(200, 1, 3, 10, start_s=1.5),
    OnOff(200, 1, 3, start_s=1.5),
    Ramp(10, 90),
    Ramp(0, 100),
    Ramp(90, 0),
    Ramp(40, 40),
    Replay((3.0, 0.5, 0.5, 80.0), 2),
]


def one(arrivals: Arrivals, seconds: float = 10, mix: Mix | None = None, seed: int = 0) -> LoadPlan:
    return LoadPlan((LoadPhase("only", seconds, arrivals, mix or Mix()),), seed=seed)


@pytest.mark.parametrize("arrivals", ARRIVALS, ids=repr)
@settings(max_examples=20)
@given(seed=st.integers(0, 1000), seconds=st.floats(0.5, 20))
def test_instants_are_in_order_within_the_phase_and_the_same_again(
    arrivals: Arrivals, seed: int, seconds: float
) -> None:
    times = list(arrivals.times(seconds, Random(seed)))
    assert times == sorted(times)
    assert all(0 <= time < seconds for time in times)
    assert times == list(arrivals.times(seconds, Random(seed)))


@pytest.mark.parametrize("arrivals", ARRIVALS, ids=repr)
def test_as_many_come_as_expected(arrivals: Arrivals) -> None:
    counts = [sum(1 for _ in arrivals.times(200, Random(seed))) for seed in range(10)]
    assert statistics.fmean(counts) == pytest.approx(arrivals.expected(200), rel=0.06)


@pytest.mark.parametrize(("arrivals", "cv"), [(Constant(100), 0), (Poisson(100), 1), (Gamma(100, 3), 3)], ids=repr)
def test_gaps_vary_as_asked(arrivals: Arrivals, cv: float) -> None:
    gaps = [later - sooner for sooner, later in itertools.pairwise(arrivals.times(300, Random(1)))]
    assert statistics.stdev(gaps) / statistics.fmean(gaps) == pytest.approx(cv, abs=0.15)


def test_bursts_come_in_their_time_and_a_ramp_rises_evenly() -> None:
    bursts = list(OnOff(100, 1, 3).times(200, Random(0)))
    assert all(time % 4 < 1 for time in bursts)
    once = list(OnOff(500, 4, 10, 50, start_s=4).times(10, Random(0)))
    assert sum(4 <= time < 8 for time in once) / 4 > 5 * sum(not 4 <= time < 8 for time in once) / 6
    ramp = list(Ramp(0, 100).times(100, Random(0)))
    assert sum(time < 50 for time in ramp) / len(ramp) == pytest.approx(0.25, abs=0.02)


def test_a_replay_gives_back_what_it_was_given() -> None:
    assert list(Replay((2.0, 0.5, 9.0), 2.0).times(3, Random(0))) == [0.25, 1.0]


def test_the_seed_alone_decides() -> None:
    plan = one(Poisson(100), mix=Mix(sessions=5, malformed_share=0.1))
    assert digest(schedule(plan)) == digest(schedule(plan))
    assert digest(schedule(plan)) != digest(schedule(msgspec.structs.replace(plan, seed=1)))


def test_another_mix_moves_no_instant_and_no_other_request() -> None:
    few = schedule(one(Poisson(100), mix=Mix(long_share=0.02)))
    many = schedule(one(Poisson(100), mix=Mix(long_share=0.3)))
    assert [request.at for request in few] == [request.at for request in many]
    changed = [(a.ask.kind, b.ask.kind) for a, b in zip(few, many, strict=True) if a.ask != b.ask]
    assert changed
    assert {(old.split("-")[0], new.split("-")[0]) for old, new in changed} == {("short", "long")}


def test_rate_and_mix_change_at_their_time() -> None:
    calm, rush = (
        LoadPhase("calm", 10, Constant(10), Mix(long_share=0)),
        LoadPhase("rush", 5, Constant(40), Mix(long_share=1)),
    )
    planned = schedule(LoadPlan((calm, rush)))
    assert [sum(request.phase == number for request in planned) for number in (0, 1)] == [100, 200]
    assert all((request.at >= 10) == (request.phase == 1) for request in planned)
    assert all(request.ask.kind.startswith("long" if request.phase else "short") for request in planned)


def test_shares_are_as_asked() -> None:
    mix = Mix(long_share=0.2, audio_share=0.5, malformed_share=0.1, sessions=4)
    asks = [request.ask for request in schedule(one(Constant(2000), mix=mix))]
    share = {kind: sum(ask.kind == kind for ask in asks) / len(asks) for kind in {ask.kind for ask in asks}}
    assert share[MALFORMED] == pytest.approx(0.1, abs=0.01)
    assert share["long-text"] == pytest.approx(0.09, abs=0.01)
    assert share["short-audio"] == pytest.approx(0.36, abs=0.02)
    assert {ask.session for ask in asks} == {0, 1, 2, 3}
    assert all(20 <= ask.tokens <= 60 for ask in asks if ask.kind.startswith("short"))
    assert {ask.tokens for ask in asks if ask.kind.startswith("short")} == set(range(20, 61))


@given(tokens=st.integers(1, 9000), place=st.integers(0, 4095), attempt=st.integers(0, 5))
def test_a_body_has_the_length_and_the_marks_asked_for(tokens: int, place: int, attempt: int) -> None:
    text = json.loads(body(RequestContent("long-text", tokens, place, 7), "r-1", attempt))
    assert len(text["text"].split()) == tokens
    assert (text["request_id"], text["attempt"], text["session"]) == ("r-1", attempt, "s-7")
    audio = json.loads(body(RequestContent("short-audio", tokens, place, None), "r-1", attempt))
    assert audio == {"request_id": "r-1", "attempt": attempt, "audio_seconds": tokens / 25}


def test_each_request_of_a_conversation_brings_the_texts_before_it() -> None:
    mix = Mix(sessions=3, malformed_share=0.1, long_share=0)
    calm, rush = LoadPhase("calm", 5, Constant(20), mix), LoadPhase("rush", 5, Constant(20), mix)
    said: dict[str, list[str]] = {}
    for request in schedule(LoadPlan((calm, rush))):
        if request.ask.kind == MALFORMED:
            continue
        fields = json.loads(body(request.ask, "r", 0))
        before = said.setdefault(fields["session"], [])
        assert fields.get("transcript", []) == before[-MOST_TURNS:]
        if "text" in fields:
            before.append(fields["text"])
    assert max(map(len, said.values())) > MOST_TURNS


def test_a_transcript_stays_far_below_what_a_body_may_have() -> None:
    mix = Mix(sessions=1, long_share=1, audio_share=0, long_tokens=(400, 512))
    bodies = [body(request.ask, "r", 0) for request in schedule(one(Constant(20), mix=mix))]
    assert max(map(len, bodies)) < MAX_BODY_BYTES / 2
    words = [sum(len(turn.split()) for turn in json.loads(each).get("transcript", [])) for each in bodies]
    assert max(words) <= MOST_WORDS


def test_without_sessions_nothing_is_brought() -> None:
    assert all(not request.ask.before for request in schedule(one(Constant(50))))


def test_wrong_bodies_are_of_many_kinds() -> None:
    drawn = [draw(Mix(malformed_share=1), rng) for rng in [Random(0)] for _ in range(200)]
    bodies = {body(ask, "r", 0) for ask in drawn}
    assert len(bodies) == 8
    assert max(map(len, bodies)) > 64 * 1024


@pytest.mark.parametrize(
    ("plan", "message"),
    [(one(Constant(10_000), 86_400), str(MAX_REQUESTS)), (one(Replay((5.0,)), 1), "higher rate")],
    ids=["too many", "none"],
)
def test_a_plan_of_too_many_or_none_is_refused(plan: LoadPlan, message: str) -> None:
    with pytest.raises(UsageError) as refused:
        schedule(plan)
    assert message in str(refused.value)


GOOD = """
seed: 7
slo_s: 0.3
retry: {kind: backoff, attempts: 2}
phases:
  - name: before
    seconds: 6
    arrivals: {kind: poisson, rate: 200}
    mix: {long_share: 0.02}
  - name: incident
    seconds: 8
    arrivals: {kind: on-off, on_rate: 400, on_s: 1, off_s: 0.5}
    mix: {long_share: 0.15, short_tokens: [10, 20]}
"""


def test_a_plan_is_read_from_yaml(tmp_path: Path) -> None:
    file = tmp_path / "plan.yaml"
    file.write_text(GOOD)
    plan = plans.read(file)
    assert (plan.seed, plan.seconds, plan.retry.attempts) == (7, 14, 2)
    assert plan.phases[1].arrivals == OnOff(400, 1, 0.5)
    assert plan.phases[1].mix.short_tokens == (10, 20)


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("rate: 200", "rate: -3", 8),
        ("rate: 200", "rate: nan", 8),
        ("kind: poisson", "kind: poison", 8),
        ("seconds: 8", "seconds: soon", 11),
        ("slo_s: 0.3", "slo: 0.3", 2),
        ("name: incident", "name: before", 2),
        ("[10, 20]", "[20, 10]", 13),
        ("long_share: 0.02", "long_share: 2%", 9),
    ],
)
def test_plan_error_has_its_line(tmp_path: Path, old: str, new: str, line: int) -> None:
    file = tmp_path / "plan.yaml"
    file.write_text(GOOD.replace(old, new))
    with pytest.raises(DefinitionError) as refused:
        plans.read(file)
    assert [problem.where for problem in refused.value.problems] == [f"{file}:{line}"]


def test_the_documented_plan_is_one(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "lab.md").read_text()
    (example,) = (block for block in page.split("```yaml\n")[1:] if block.startswith("phases:"))
    (tmp_path / "plan.yaml").write_text(example.partition("```")[0])
    found = plans.read(tmp_path / "plan.yaml")
    assert [phase.name for phase in found.phases] == ["before", "rush", "after"]
    assert schedule(found)
