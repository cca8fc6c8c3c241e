"""What the session store saves: context computed again, bytes on the network, memory by time to live.

Usage: python -m bench.session_store [--sessions 200] [--turns 8] [--seed 1] [-o text|json]
Needs redis-server (LATDOCTOR_REDIS names its folder). Conversations are answered by two replicas in turn, without
stickiness, through the session levels of the reference server and a real Redis; there is no model and no HTTP. Texts
have 20 to 60 words, as those of the load generator.

* Context: tokens of history made again from transcripts, over all tokens that requests are computed with, in one run.
* Network: what Redis itself counts (INFO stats), with the difference and with the whole state at each write.
* Memory: data in Redis (used_memory above an empty server) in the last third of a stream of conversations whose time
  runs 600 times as fast: an hour to live is 6 s, a quarter of an hour is 1.5 s. Conversations last 5 minutes.

Every history is compared with what was said; a wrong one ends the bench with exit code 1.
"""

from __future__ import annotations

import os
import random
import statistics
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from bench.harness import arguments, markdown, print_result
from latdoctor.lab.redis_server import RedisServer
from latdoctor.lab.server.config import SessionsConfig
from latdoctor.lab.server.metrics import ServerMetrics
from latdoctor.lab.server.session_metrics import SessionMetrics
from latdoctor.lab.server.sessions.conversation import Conversation
from latdoctor.lab.server.sessions.redis_store import PASSWORD_VARIABLE, Conflict, RedisStore
from latdoctor.lab.server.sessions.session_levels import SessionLevels
from latdoctor.load.mix import filler_text
from latdoctor.load.text_tokens import text_tokens

REPLICAS = 2
MAX_TOKENS = 512
FASTER = 600.0
SECONDS_PER_CONVERSATION = 300.0
MEMORY_SECONDS = 24.0  # of one measurement
CONVERSATIONS_PER_SECOND = 40.0  # of real time
TTLS = {"1 h": 3600.0, "15 min": 900.0}


class Replica:
    """The session levels of one server."""

    def __init__(self, settings: SessionsConfig) -> None:
        self.metrics = ServerMetrics("bench", "cpu")
        observer = SessionMetrics(self.metrics)
        self.levels = SessionLevels(settings, MAX_TOKENS, observer, threading.Lock(), time.monotonic)

    def counted(self, name: str) -> float:
        return sum(sample.value for family in self.metrics.registry.collect() for sample in family.samples
                   if sample.name == name)  # fmt: skip


def turn(replica: Replica, session: str, said: list[str], text: str) -> int:
    """Answers one turn; the tokens of its history. Exits where the history is not what was said."""
    opened = replica.levels.open_session(session, tuple(said[-20:]))
    truth = [token for earlier in said for token in text_tokens(earlier)]
    history = opened.tokens
    if len(history) > len(truth) or list(history) != truth[len(truth) - len(history) :]:
        sys.exit(f"session {session}: the history is not what was said")
    replica.levels.add_turn(opened, text, text_tokens(text))
    said.append(text)
    return len(history)


def conversations(settings: SessionsConfig, sessions: int, turns: int, seed: int) -> Mapping[str, float]:
    """Every session's turns, mixed, at the replicas in turn."""
    chance = random.Random(seed)
    replicas = [Replica(settings) for _ in range(REPLICAS)]
    said: list[list[str]] = [[] for _ in range(sessions)]
    order = [session for session in range(sessions) for _ in range(turns)]
    chance.shuffle(order)
    own = history = 0
    started = time.perf_counter()
    for number, session in enumerate(order):
        text = filler_text(chance.randrange(4000), chance.randint(20, 60))
        own += len(text_tokens(text))
        history += turn(replicas[number % REPLICAS], f"s{session}", said[session], text)
    seconds = time.perf_counter() - started
    again = sum(replica.counted("ref_session_recomputed_tokens_total") for replica in replicas)
    for replica in replicas:
        replica.levels.close()
    return {
        "requests": len(order),
        "own_tokens": own,
        "history_tokens": history,
        "recomputed_tokens": again,
        "recomputed_of_all": again / (own + history),
        "recomputed_of_history": again / history,
        "ms_per_request": seconds * 1000 / len(order),
    }


def whole_writes(store: RedisStore, session: str, known: Conversation | None, desired: Conversation) -> Conflict | None:
    """A write without the difference."""
    return store.replace(session, Conflict(known.last.tag if known else b""), desired)


def network(server: RedisServer, run: Callable[[], Mapping[str, float]]) -> Mapping[str, float]:
    """Bytes that Redis received and sent during `run`."""
    server.flush()
    before = traffic(server)
    run()
    after = traffic(server)
    return {"received": after[0] - before[0], "sent": after[1] - before[1], "both": sum(after) - sum(before)}


def traffic(server: RedisServer) -> tuple[int, int]:
    with server.client() as client:
        stats = client.info("stats")
    return int(stats["total_net_input_bytes"]), int(stats["total_net_output_bytes"])


def memory(server: RedisServer, settings: SessionsConfig, turns: int, seed: int) -> float:
    """Mean bytes of data in the last third of a stream of conversations."""
    chance = random.Random(seed)
    server.flush()
    empty = server.used_bytes()
    replica = Replica(settings)
    due: list[tuple[float, int, int]] = []  # when, session, turn
    for session in range(int(MEMORY_SECONDS * CONVERSATIONS_PER_SECOND)):
        begins = session / CONVERSATIONS_PER_SECOND
        gap = SECONDS_PER_CONVERSATION / FASTER / turns
        due += [(begins + number * gap, session, number) for number in range(turns)]
    said: dict[int, list[str]] = {}
    samples = []
    started = time.monotonic()
    for when, session, _ in sorted(due):
        if when > MEMORY_SECONDS:
            break
        time.sleep(max(0.0, started + when - time.monotonic()))
        turn(replica, f"m{session}", said.setdefault(session, []), filler_text(chance.randrange(4000), 40))
        if when > MEMORY_SECONDS * 2 / 3 and chance.random() < 0.02:
            samples.append(server.used_bytes() - empty)
    replica.levels.close()
    return statistics.mean(samples)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--sessions", type=int, default=200)
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    size = (options.sessions, options.turns, options.seed)
    with RedisServer() as server:
        os.environ[PASSWORD_VARIABLE] = server.password
        redis = SessionsConfig(store="redis", redis_address=server.address, max_sessions=0, store_timeout_ms=2000)
        without = conversations(SessionsConfig(max_sessions=0), *size)
        process = conversations(SessionsConfig(), *size)
        server.flush()
        shared = conversations(redis, *size)
        difference = network(server, lambda: conversations(redis, *size))
        plain, RedisStore.write = RedisStore.write, whole_writes  # type: ignore[method-assign]
        whole = network(server, lambda: conversations(redis, *size))
        RedisStore.write = plain  # type: ignore[method-assign]
        kept = {
            name: memory(server, SessionsConfig(
                store="redis", redis_address=server.address, max_sessions=0, store_timeout_ms=2000, ttl_s=ttl / FASTER
            ), options.turns, options.seed)
            for name, ttl in TTLS.items()
        }  # fmt: skip
    found = {
        "context": {"without": without, "process": process, "redis": shared},
        "network": {"difference": difference, "whole": whole},
        "memory_bytes": kept,
    }
    print_result(found, options.output, "\n".join(table(found)))


def table(found: Mapping[str, Mapping[str, Mapping[str, float]]]) -> Sequence[str]:
    context, wire, kept = found["context"], found["network"], found["memory_bytes"]
    names = {"without": "without a store", "process": "in each process", "redis": "in Redis"}
    rows = [
        (f"context made again, {text}", f"{context[name]['recomputed_of_all']:.0%} of all tokens",
         f"{context[name]['recomputed_of_history']:.0%} of the history")
        for name, text in names.items()
    ]  # fmt: skip
    rows += [
        (f"network, {part}", f"{wire['whole'][part] / 1e6:.2f} → {wire['difference'][part] / 1e6:.2f} MB",
         f"{wire['difference'][part] / wire['whole'][part] - 1:+.0%}")
        for part in ("received", "sent", "both")
    ]  # fmt: skip
    long, short = (float(value) for value in kept.values())  # type: ignore[arg-type]
    rows.append(
        ("memory, 1 h → 15 min to live", f"{long / 1e3:.0f} kB → {short / 1e3:.0f} kB", f"{short / long - 1:+.0%}")
    )
    return markdown(("measured", "figures", "ratio"), rows)


if __name__ == "__main__":
    main()
