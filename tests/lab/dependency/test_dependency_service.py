"""The small dependency: hits and misses by key and age, and its own process."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from latdoctor.errors import UsageError
from latdoctor.lab.dependency_service import LONGEST_KEY, FeatureStore, StoreSettings, build, features
from latdoctor.lab.hardened_http_server import HttpServer

DEADLINE = 20.0  # for a test that hangs; nothing is measured by it


class Time:
    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@given(
    asked=st.lists(st.tuples(st.floats(0, 5), st.sampled_from("abcdef")), max_size=60),
    ttl=st.floats(0, 10),
    most=st.integers(1, 4),
)
def test_a_key_is_a_hit_just_while_it_is_kept(asked: list[tuple[float, str]], ttl: float, most: int) -> None:
    time = Time()
    store = FeatureStore(StoreSettings(ttl=ttl, max_keys=most), time)
    kept: dict[str, float] = {}  # the plain rule: key → until, the longest unused first
    for pause, key in asked:
        time.seconds += pause
        fresh = kept.get(key, -1.0) > time()
        assert store.look_up(key) is fresh
        until = kept.pop(key, 0.0)
        if fresh:
            kept[key] = until
        else:
            store.keep(key)
            if ttl > 0:
                kept[key] = time() + ttl
        while len(kept) > most:
            del kept[next(iter(kept))]
        assert len(store) <= most


def test_the_longest_unused_key_makes_room() -> None:
    store = FeatureStore(StoreSettings(ttl=60, max_keys=2), Time())
    store.keep("a")
    store.keep("b")
    assert store.look_up("a")  # so b is now the longer unused
    store.keep("c")
    assert [store.look_up(key) for key in "abc"] == [True, False, True]


@given(key=st.text(max_size=50))
def test_features_are_those_of_the_key(key: str) -> None:
    assert features(key) == features(key)
    assert features(key) != features(key + "x")
    assert all(0 <= one <= 1 for one in features(key))


@pytest.mark.parametrize("wrong", [StoreSettings(ttl=-1), StoreSettings(max_keys=0), StoreSettings(miss_seconds=-1)])
def test_settings_that_make_no_sense_are_refused(wrong: StoreSettings) -> None:
    with pytest.raises(UsageError):
        build(wrong)


def test_the_service_answers_and_counts() -> None:
    async def test() -> None:
        listening = HttpServer(build())
        await listening.start()
        async with aiohttp.ClientSession(listening.url) as session:
            for hit in (False, True):
                async with session.get("/features/user%3A7") as answer:
                    assert answer.status == 200
                    assert await answer.json() == {"key": "user:7", "hit": hit, "features": list(features("user:7"))}
            async with session.get("/features/" + "k" * (LONGEST_KEY + 1)) as answer:
                assert (answer.status, (await answer.json())["error"]) == (414, "key-too-long")
            async with session.get("/metrics") as answer:
                page = await answer.text()
            assert 'dependency_lookups_total{result="hit"} 1.0' in page
            assert 'dependency_lookups_total{result="miss"} 1.0' in page
            assert "dependency_keys 1.0" in page
        await listening.stop()

    asyncio.run(asyncio.wait_for(test(), DEADLINE))


def test_the_process_says_where_it_answers_and_ends_on_the_signal() -> None:
    async def hits(url: str) -> list[bool]:
        async with aiohttp.ClientSession(url) as session:
            found = []
            for _ in range(2):
                async with session.get("/features/a") as answer:
                    found.append((await answer.json())["hit"])
            return found

    command = [sys.executable, "-m", "latdoctor.lab.dependency_service", "--ttl", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        url = process.stdout.readline().decode().strip()
        assert asyncio.run(hits(url)) == [False, False]  # nothing is kept
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE) == 0


def test_a_port_that_is_taken_is_said_once() -> None:
    listening = HttpServer(build())
    command = [sys.executable, "-m", "latdoctor.lab.dependency_service", "--port", str(listening.port)]

    async def test() -> subprocess.CompletedProcess[str]:
        await listening.start()
        done = await asyncio.to_thread(
            subprocess.run, command, capture_output=True, text=True, check=False, timeout=DEADLINE
        )
        await listening.stop()
        return done

    done = asyncio.run(test())
    assert (done.returncode, done.stdout) == (1, "")
    assert "the port is not available" in done.stderr
    assert "Traceback" not in done.stderr
