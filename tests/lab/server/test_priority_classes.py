"""Priority classes: the laws of their quotas for any sequence of requests, and a server with them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from latdoctor.errors import UsageError
from latdoctor.lab.server.config import PrioritiesConfig, ServerConfig, load_config, patched
from latdoctor.lab.server.priority_classes import ClassQuotas, ClassRule, Entry
from tests.lab.server.running_server import ADMIN, Running

NAMES = ("interactive", "standard", "batch")
SHARES = {"interactive": 0.6, "standard": 0.3, "batch": 0.1}
MOVES = st.lists(st.tuples(st.sampled_from([*NAMES, "leave"]), st.integers(0, 30)), max_size=200)


class Line:
    """Requests that come and go; checks the laws at each step."""

    def __init__(self, seats: int, places: int) -> None:
        self.rule = ClassRule(SHARES, seats, places)
        self.quotas = ClassQuotas(self.rule)
        self.state: dict[int, tuple[str, Entry]] = {}
        self.next = 0

    def quota(self, name: str) -> int:
        return int(SHARES[name] * self.rule.places + 1e-9)

    def count(self, state: Entry, name: str = "") -> int:
        return sum(entry is state and name in ("", one) for one, entry in self.state.values())

    def enter(self, name: str) -> Entry:
        full, within = self.count(Entry.WAITING) >= self.rule.places, self.count(Entry.WAITING, name) < self.quota(name)
        self.next += 1
        entry, displaced = self.quotas.enter(name, self.next)
        if entry is Entry.REFUSED:
            assert full  # refused only where nothing is left,
            assert not within  # and never a class within its quota
        else:
            self.state[self.next] = name, entry
        if displaced is not None:
            other, state = self.state.pop(displaced)
            assert state is Entry.WAITING
            assert self.count(Entry.WAITING, other) >= self.quota(other)  # it had more than its own
            assert self.quotas.leave(displaced) == []
        self.check()
        return entry

    def leave(self, request: int) -> None:
        self.state.pop(request)
        for seated in self.quotas.leave(request):
            name, entry = self.state[seated]
            assert entry is Entry.WAITING
            # Nobody who has less of its share waits on.
            having = self.count(Entry.SEATED, name) / SHARES[name]
            waiting = {one for one, state in self.state.values() if state is Entry.WAITING}
            assert all(self.count(Entry.SEATED, one) / SHARES[one] >= having for one in waiting)
            self.state[seated] = name, Entry.SEATED
        self.check()

    def check(self) -> None:
        assert self.count(Entry.SEATED) <= self.rule.seats
        assert self.count(Entry.WAITING) <= self.rule.places
        assert not self.count(Entry.WAITING) or self.count(Entry.SEATED) == self.rule.seats  # no seat is left empty
        for name in NAMES:
            assert self.quotas.seated(name) == self.count(Entry.SEATED, name)
            assert self.quotas.waiting(name) == self.count(Entry.WAITING, name)


@given(seats=st.integers(1, 12), places=st.integers(0, 20), moves=MOVES)
def test_no_class_within_its_quota_is_refused_and_no_room_is_left_unused(
    seats: int, places: int, moves: list[tuple[str, int]]
) -> None:
    line = Line(seats, places)
    for move, number in moves:
        if move != "leave":
            line.enter(move)
        elif line.state:
            line.leave(sorted(line.state)[number % len(line.state)])


def test_a_class_alone_borrows_everything_and_gives_it_back() -> None:
    line = Line(10, 10)
    assert [line.enter("batch") for _ in range(21)].count(Entry.REFUSED) == 1
    assert (line.count(Entry.SEATED, "batch"), line.count(Entry.WAITING, "batch")) == (10, 10)
    # The owners of the places get them at once, and the seats one after the other as they get free.
    assert [line.enter("interactive") for _ in range(6)] == [Entry.WAITING] * 6
    assert line.count(Entry.WAITING, "batch") == 4
    for request in [one for one, (name, entry) in line.state.items() if (name, entry) == ("batch", Entry.SEATED)][:6]:
        line.leave(request)
    assert line.count(Entry.SEATED, "interactive") == 6


def test_under_overload_of_all_each_class_is_served_by_its_share() -> None:
    line, served = Line(10, 30), Counter[str]()
    for step in range(3000):
        for name in NAMES:
            line.enter(name)
        seated = [request for request, (_, entry) in line.state.items() if entry is Entry.SEATED]
        served[line.state[seated[step % len(seated)]][0]] += 1
        line.leave(seated[step % len(seated)])
    total = sum(served.values())
    assert {name: served[name] / total for name in NAMES} == pytest.approx(SHARES, abs=0.03)


@pytest.mark.parametrize(
    "knobs",
    [{"names": ["a", "b"]}, {"shares": [0.9, 0.2, 0.1]}, {"default": "none"}, {"names": ["a", "a", "b"]}],
)
def test_classes_without_a_share_or_with_too_much_are_refused(knobs: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        patched(ServerConfig(), {"priorities": knobs})


def test_classes_are_set_on_the_command_line() -> None:
    given_ = ["priorities.names=gold,standard", "priorities.shares=0.5,0.5"]
    # One setting at a time is checked, so that both go in one file or patch; here the number stays the same.
    with pytest.raises(UsageError):
        load_config(None, given_)
    assert load_config(None, ["priorities.shares=0.5,0.3,0.2"]).priorities.shares == (0.5, 0.3, 0.2)


@contextmanager
def held(server: Running, count: int, name: str) -> Iterator[list[Future[httpx.Response]]]:
    """So many requests of the class that the model keeps until the context ends."""
    with ThreadPoolExecutor(max(1, count)) as pool:
        yield [pool.submit(post, server, name) for _ in range(count)]


def post(server: Running, name: str | None = None) -> httpx.Response:
    headers = {"x-priority-class": name} if name else {}
    return httpx.post(f"{server.url}/v1/intent", json={"text": "word"}, headers=headers, timeout=20, trust_env=False)


def sample(server: Running, name: str, kind: str) -> float:
    lines = server.client.get("/metrics").text.splitlines()
    found = (line for line in lines if line.startswith(name + "{") and f'class="{kind}"' in line)
    return float(next(found, "0").split()[-1])


def test_a_full_class_gets_429_with_retry_after_and_the_others_go_on() -> None:
    config = ServerConfig(priorities=PrioritiesConfig(seats=1, waiting=2, shares=(0.5, 0.0, 0.5)))
    with Running(config) as server:
        server.model.gate.clear()
        with held(server, 2, "batch") as batch:
            server.until(lambda: sample(server, "ref_class_waiting", "batch") == 1)
            with held(server, 1, "interactive") as interactive:
                server.until(lambda: sample(server, "ref_class_waiting", "interactive") == 1)
                refused = post(server, "batch")
                assert (refused.status_code, refused.json()["error"]) == (429, "class-full")
                assert int(refused.headers["retry-after"]) >= 1
                server.model.gate.set()
                assert [one.result().status_code for one in (*batch, *interactive)] == [200, 200, 200]
        assert sample(server, "ref_class_refused_total", "batch") == 1
        assert sample(server, "ref_class_requests_total", "interactive") == 1
        assert sample(server, "ref_class_seconds_count", "batch") == 2
        assert sample(server, "ref_class_waiting", "batch") == sample(server, "ref_class_seated", "batch") == 0


def test_a_class_within_its_quota_takes_the_place_that_it_had_lent() -> None:
    config = ServerConfig(priorities=PrioritiesConfig(seats=1, waiting=2, shares=(0.5, 0.0, 0.5)))
    with Running(config) as server:
        server.model.gate.clear()
        with held(server, 3, "batch") as batch, ThreadPoolExecutor(1) as pool:
            server.until(lambda: sample(server, "ref_class_waiting", "batch") == 2)
            quick = pool.submit(post, server, "interactive")
            server.until(lambda: any(one.done() for one in batch))
            server.model.gate.set()
            assert quick.result().status_code == 200
            assert sorted(one.result().status_code for one in batch) == [200, 200, 429]


def test_an_unknown_class_is_refused_while_the_classes_are_on_and_they_are_switched_live() -> None:
    with Running(ServerConfig()) as server:
        assert post(server, "gold").status_code == 200
        headers = {**ADMIN, "if-match": "*"}
        answer = server.client.patch("/admin/config", json={"priorities": {"seats": 4}}, headers=headers)
        assert answer.status_code == 200
        assert post(server, "gold").status_code == 422
        assert post(server).status_code == 200
        assert sample(server, "ref_class_requests_total", "standard") == 1
