"""Answers to frequent questions: by text, for a time, for one model version, and compared now and then."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from latdoctor.lab.server.answer_cache import AnswerCache, CachedAnswer, normalised
from latdoctor.lab.server.config import AnswerCacheConfig, ServerConfig
from latdoctor.lab.server.metrics import ServerMetrics
from tests.lab.server.running_server import ADMIN, Running


class Clocked:
    """A cache whose time, model version and chance a test sets."""

    def __init__(self, **settings: object) -> None:
        self.now, self.version, self.drawn = 0.0, "v1", 1.0
        config = AnswerCacheConfig(**{"mode": "normalised", **settings})  # type: ignore[arg-type]
        self.cache = AnswerCache(
            config, ServerMetrics("r", "cpu"), lambda: self.version, lambda: self.now, lambda: self.drawn
        )

    def keep(self, text: str, intent: str = "refund") -> None:
        self.cache.keep(text, CachedAnswer(intent, 0.9, self.version, 0.25, self.now))

    def answer(self, text: str) -> str | None:
        found = self.cache.look_up(text)
        return found.intent if found else None


@pytest.mark.parametrize(
    ("mode", "asked", "hit"),
    [
        ("exact", "Where is my order?", True),
        ("exact", "where is my order", False),
        ("normalised", "  where IS my   order ", True),
        ("normalised", "Ｗhere is my order!", True),
        ("normalised", "where is my parcel?", False),
    ],
)
def test_which_questions_are_the_same(mode: str, asked: str, hit: bool) -> None:
    clocked = Clocked(mode=mode)
    clocked.keep("Where is my order?")
    assert (clocked.answer(asked) is not None) is hit


@given(st.text(max_size=60))
def test_normalising_again_changes_nothing(text: str) -> None:
    assert normalised(normalised(text)) == normalised(text)


def test_an_answer_expires() -> None:
    clocked = Clocked(ttl_s=10)
    clocked.keep("a")
    clocked.now = 9.9
    assert clocked.answer("a") == "refund"
    clocked.now = 10.0
    assert clocked.answer("a") is None
    assert len(clocked.cache) == 0


def test_an_answer_of_another_model_version_is_not_given() -> None:
    clocked = Clocked()
    clocked.keep("a")
    clocked.version = "v2"
    assert clocked.answer("a") is None
    assert len(clocked.cache) == 0


@given(st.lists(st.sampled_from("abcdefgh"), max_size=40), st.integers(1, 5))
def test_the_number_of_answers_and_their_bytes_are_bounded(asked: list[str], most: int) -> None:
    clocked = Clocked(max_entries=most)
    for text in asked:
        clocked.keep(text)
        assert len(clocked.cache) <= most
    recent = list(dict.fromkeys(reversed(asked)))[:most]
    assert [text for text in "abcdefgh" if clocked.answer(text)] == sorted(recent)
    clocked.cache.configure(AnswerCacheConfig(mode="off"))
    assert (len(clocked.cache), clocked.cache.size_bytes) == (0, 0)


CACHED = ServerConfig(answer_cache=AnswerCacheConfig(mode="normalised", check_share=0))


def test_a_repeated_question_is_not_computed_again() -> None:
    with Running(CACHED) as server:
        answers = [server.ask(text=text).json() for text in ("one two", "One two!", "one two three")]
        assert [answer["source"] for answer in answers] == ["model", "cache", "model"]
        assert answers[0]["intent"] == answers[1]["intent"]
        assert answers[1]["model_version"] == answers[0]["model_version"]
        assert len(server.model.batches) == 2
        page = server.page()
    assert page["ref_answer_cache_lookups_total", "hit"] == 1
    assert page["ref_answer_cache_saved_seconds_total", ""] > 0
    assert page["ref_answer_cache_entries", ""] == 2


def test_answers_of_conversations_are_not_cached() -> None:
    with Running(CACHED) as server:
        for _ in range(2):
            assert server.ask(text="one", session="s", transcript=[]).json()["source"] == "model"
        assert len(server.model.batches) == 2


def test_a_new_model_version_begins_with_an_empty_cache() -> None:
    with Running(CACHED) as server:
        server.ask(text="one")
        change = {"model": {"version": "v2"}}
        assert server.client.patch("/admin/config", json=change, headers={**ADMIN, "if-match": "*"}).is_success
        answers = [server.ask(text="one").json() for _ in range(2)]
        assert [(answer["source"], answer["model_version"]) for answer in answers] == [("model", "v2"), ("cache", "v2")]


def test_a_wrong_answer_is_found_by_computing_it_again() -> None:
    settings = AnswerCacheConfig(mode="exact", check_share=1)
    with Running(ServerConfig(answer_cache=settings)) as server:
        for _ in range(2):
            server.ask(text="one")
        server.parts.answers.rewrite(lambda answer: msgspec.structs.replace(answer, intent="another"))
        assert server.ask(text="one").json()["source"] == "model"
        page = server.page()
    assert page["ref_answer_cache_checked_total", ""] == 2
    assert page["ref_answer_cache_wrong_total", ""] == 1
