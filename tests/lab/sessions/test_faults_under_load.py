"""A real Redis fails in every way while conversations go on at two servers: no request is lost, no answer is wrong."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, nullcontext

import pytest

from latdoctor.lab.faults.session_store import StoreFaultKind, store_fault
from latdoctor.lab.redis_server import RedisServer
from tests.lab.server.running_server import Running
from tests.lab.sessions.conversing_clients import Clients
from tests.lab.sessions.redis_servers import config_in_redis

ALONE = tuple(kind for kind in StoreFaultKind if kind is not StoreFaultKind.FAIL_OVER)  # of a Redis without a replica
ANSWERS = 60  # in each phase


def restart(server: RedisServer) -> None:
    server.kill()
    server.start()


@pytest.mark.parametrize("process", [0, 100], ids=["stateless", "process-level"])
def test_no_request_is_lost_and_no_answer_is_wrong(redis_server: RedisServer, process: int) -> None:
    config = config_in_redis(
        redis_server, max_sessions=process, window_turns=3, store_timeout_ms=100, store_breaker_open_ms=50
    )
    actions: list[Callable[[], object]] = [lambda: restart(redis_server), redis_server.flush]
    with ExitStack() as started:
        servers = [started.enter_context(Running(config)) for _ in range(2)]
        clients = started.enter_context(Clients([server.url for server in servers]))
        clients.until_answered(ANSWERS)
        for kind in (*ALONE, None):
            with store_fault(kind, redis_server, 600) if kind else nullcontext():
                clients.until_answered(ANSWERS)
            clients.until_level("redis")
        with redis_server.client() as client:
            client.execute_command("CLIENT", "PAUSE", 500, "ALL")
        clients.until_answered(ANSWERS)
        for act in actions:
            act()
            clients.until_level("redis")
        reasons = {reason for server in servers for (name, reason), count in server.page().items()
                   if name == "ref_session_store_errors_total" and count}  # fmt: skip
    assert clients.wrong == []
    assert process or clients.levels["recomputed"] > 0  # of two processes each lacks one turn only
    assert {"connection", "full", "read-only"} <= reasons
