"""What gives way under load, and in which order."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latdoctor.lab.server.config import GovernanceConfig as Settings
from latdoctor.lab.server.config import QueueConfig, ServerConfig
from latdoctor.lab.server.errors import LoadShed
from latdoctor.lab.server.governance import FEWEST, WINDOW, Breaker, Governance, RetryBudget
from latdoctor.lab.server.intent_request import IntentRequest, PendingRequests, Ticket
from latdoctor.lab.server.schedulers.batch import Batch, Work
from latdoctor.lab.server.schedulers.cost_model import CostModel
from tests.lab.server.running_server import Running

NORMAL, HIGH = IntentRequest(text="a"), IntentRequest(text="a", priority="high")


def book(*tokens: int) -> PendingRequests:
    made = PendingRequests()
    loop = asyncio.new_event_loop()
    for id_, count in enumerate(tokens):
        made.add(Ticket(Work(id_, count, 0.0), [], loop.create_future()))
    loop.close()
    return made


def governance(config: ServerConfig, seconds_per_call: float | None = None) -> Governance:
    cost_model = CostModel()
    if seconds_per_call is not None:
        for _ in range(20):
            cost_model.observe(Batch((Work(1, 10, 0.0),), "idle"), seconds_per_call)
    return Governance(config, cost_model, lambda: 100.0)


@pytest.mark.parametrize(("queue", "waiting", "tokens", "admitted"), [
    (QueueConfig(max_requests=2), (5,), 5, True),
    (QueueConfig(max_requests=2), (5, 5), 5, False),
    (QueueConfig(max_tokens=20), (5, 5), 10, True),
    (QueueConfig(max_tokens=20), (5, 5), 11, False),
    (QueueConfig(max_tokens=20), (), 500, True),
])  # fmt: skip
def test_the_queue_is_bounded(queue: QueueConfig, waiting: tuple[int, ...], tokens: int, admitted: bool) -> None:
    judge = governance(ServerConfig(queue=queue))
    if admitted:
        assert judge.admit(HIGH, tokens, 100.0, book(*waiting)) is None
        return
    with pytest.raises(LoadShed) as shed:
        judge.admit(HIGH, tokens, 100.0, book(*waiting))
    assert (shed.value.status, shed.value.reason) == (503, "queue-full")
    assert shed.value.response().headers["retry-after"] == "2"


def test_a_request_that_would_be_too_late_gets_a_retry_after() -> None:
    judge = governance(ServerConfig(queue=QueueConfig(deadline_ms=1000)), seconds_per_call=0.5)
    assert judge.admit(NORMAL, 10, 100.0, book()) == 101.0
    assert judge.admit(HIGH, 10, 100.0, book(*[10] * 50)) is None
    with pytest.raises(LoadShed) as shed:
        judge.admit(NORMAL, 10, 100.0, book(*[10] * 50))
    assert (shed.value.status, shed.value.reason) == (429, "deadline")
    assert int(shed.value.response().headers["retry-after"]) > 1


def opened(config: ServerConfig) -> Governance:
    """After twenty answers of 0.2 s, spread over the last second but one."""
    times = iter([*(99.0 + at / FEWEST for at in range(FEWEST)), *[100.0] * 9])
    judge = Governance(config, CostModel(), lambda: next(times))
    for _ in range(FEWEST + 1):
        judge.answered(0.2)
    return judge


def test_an_open_breaker_turns_long_requests_away() -> None:
    judge = opened(ServerConfig(governance=Settings(breaker_p99_ms=100, breaker_open_ms=3000)))
    assert judge.breaker.is_open(100.0)
    assert judge.admit(NORMAL, 200, 100.0, book()) is None
    assert judge.admit(HIGH, 201, 100.0, book()) is None
    with pytest.raises(LoadShed) as shed:
        judge.admit(NORMAL, 201, 100.0, book())
    assert (shed.value.status, shed.value.reason, shed.value.response().headers["retry-after"]) == (429, "breaker", "4")


@pytest.mark.parametrize(("standby", "slow", "wanted"), [
    ("off", True, False), ("auto", False, False), ("auto", True, True), ("on", False, True),
])  # fmt: skip
def test_the_light_model_answers_while_the_breaker_is_open(standby: str, slow: bool, wanted: bool) -> None:
    settings = Settings(breaker_p99_ms=100 if slow else 1000, standby=standby)  # type: ignore[arg-type]
    judge = opened(ServerConfig(governance=settings))
    assert judge.wants_standby() is wanted
    if wanted:
        assert judge.admit(NORMAL, 500, 100.0, book()) is None


def opened_at(breaker: Breaker, open_for: float) -> float:
    """Slow answers, ten a second, until it opens."""
    for at in range(10 * FEWEST):
        breaker.note(2.0, at / 10, limit=1.0, open_for=open_for)
        if breaker.is_open(at / 10):
            return at / 10
    raise AssertionError("it did not open")


def test_the_breaker_closes_after_its_time_and_measures_anew() -> None:
    breaker = Breaker()
    since = opened_at(breaker, 3.0)
    assert [breaker.is_open(since + later) for later in (0.0, 2.9, 3.1)] == [True, True, False]
    breaker.note(2.0, since + 3.5, limit=1.0, open_for=3.0)
    assert not breaker.is_open(since + 3.5)


def test_slow_answers_of_long_ago_do_not_open_the_breaker() -> None:
    breaker = Breaker()
    for _ in range(FEWEST - 1):
        breaker.note(2.0, 0.0, limit=1.0, open_for=3.0)
    for at in range(FEWEST):
        breaker.note(0.1, WINDOW + at, limit=1.0, open_for=3.0)
    assert not breaker.is_open(WINDOW + FEWEST)


def test_switching_the_breaker_off_closes_it() -> None:
    breaker = Breaker()
    since = opened_at(breaker, 300.0)
    breaker.note(2.0, since + 1, limit=0.0, open_for=300.0)
    assert not breaker.is_open(since + 1)


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 30)), max_size=200), st.floats(0.01, 1))
def test_retries_never_exceed_their_share(requests: list[tuple[bool, float]], share: float) -> None:
    budget = RetryBudget()
    let_in: list[float] = []
    came: list[float] = []
    for is_retry, now in sorted(requests, key=lambda request: request[1]):
        came.append(now)
        if budget.allows(is_retry=is_retry, now=now, share=share) and is_retry:
            let_in.append(now)
            since = int(now) - RetryBudget.SECONDS + 1
            assert sum(time >= since for time in let_in) <= share * sum(time >= since for time in came)


@given(st.lists(st.booleans(), max_size=50))
def test_without_a_budget_every_retry_is_let_in(retries: list[bool]) -> None:
    budget = RetryBudget()
    assert all(budget.allows(is_retry=retry, now=0.0, share=0.0) for retry in retries)


def test_retries_over_the_budget_are_refused_at_the_door() -> None:
    with Running(ServerConfig(governance=Settings(retry_budget=0.5))) as server:
        assert server.ask(text="a").status_code == 200
        assert server.ask(text="a", attempt=1).status_code == 200
        refused = server.ask(text="a", attempt=2)
        assert (refused.status_code, refused.json()["error"]) == (429, "retry-budget")
        assert server.page()[("ref_retry_arrivals_total", "")] == 2
        assert server.page()[("ref_requests_shed_total", "retry-budget")] == 1


def test_a_full_queue_refuses_and_is_emptied_in_order() -> None:
    with Running(ServerConfig(queue=QueueConfig(max_requests=1))) as server:
        server.model.gate.clear()
        first = server.asking(text="one")
        server.model.until_entered()
        second = server.asking(text="one two")
        server.until(lambda: server.page()[("ref_queue_depth", "")] == 1)
        refused = server.ask(text="one two three")
        assert (refused.status_code, refused.json()["error"]) == (503, "queue-full")
        assert "retry-after" in refused.headers
        server.model.gate.set()
        assert [first.answer().status_code, second.answer().status_code] == [200, 200]
        assert server.page()[("ref_requests_shed_total", "queue-full")] == 1


def test_a_deadline_that_passes_in_the_queue_sheds() -> None:
    with Running(ServerConfig(queue=QueueConfig(deadline_ms=50))) as server:
        server.model.gate.clear()
        first = server.asking(text="one")
        server.model.until_entered()
        late = server.ask(text="one two")
        assert (late.status_code, late.json()["error"]) == (429, "deadline")
        server.model.gate.set()
        assert first.answer().status_code == 200
        assert server.ask(text="one two three").status_code == 200
        assert server.model.batches == [[1], [3]]


def test_after_its_time_the_standard_answer_is_given() -> None:
    with Running(ServerConfig(governance=Settings(fallback_ms=50))) as server:
        server.model.gate.clear()
        answers = [server.ask(text="one").json(), server.ask(text="one two").json()]
        assert [(answer["intent"], answer["source"]) for answer in answers] == [("faq", "fallback")] * 2
        assert server.page()[("ref_fallback_total", "")] == 2
        assert server.page()[("ref_queue_depth", "")] == 0
        server.model.gate.set()
        server.until(lambda: server.ask(text="a b c").json()["source"] == "model")
