"""Record the pages of redis_exporter that `tests/cli/incidents/` and `tests/dialects/pages/redis-exporter/` have.

    python tools/record_redis_pages.py PROGRAM FOLDER

PROGRAM is redis_exporter (Debian: prometheus-redis-exporter; MIT); Redis is found as by the laboratory. Each case is a
real Redis in a state, with clients that read and write keys for a few seconds between two pages, of which only what the
dialect reads is kept.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from latdoctor.dialects.loader import shipped
from latdoctor.http.client import HttpRequest, HttpResponse, send_request
from latdoctor.lab.redis_server import RedisServer, RedisSettings
from latdoctor.lab.server.supervisor import free_ports

KEPT = ("redis_exporter_build_info", "redis_start_time_seconds", "redis_exporter_last_scrape_error")
_SYSTEM, _ANY_SYSTEM = r',os="[^"]*"', ',os="Linux"'
SECONDS = 5.0  # between the pages
LIMIT_MIB, KEYS, VALUE = 8.0, 4000, 400  # room for the keys, of so many bytes


@contextmanager
def exporter(program: str, redis: RedisServer, password: str | None = None) -> Iterator[str]:
    """redis_exporter before `redis`; the address of its page."""
    (port,) = free_ports(1)
    process = subprocess.Popen(  # noqa: S603 - named by the caller
        [program, "-redis.addr", f"redis://{redis.address}", "-web.listen-address", f"127.0.0.1:{port}"],
        env={**os.environ, "REDIS_PASSWORD": redis.password if password is None else password},
        stderr=subprocess.DEVNULL,
    )
    try:
        yield f"http://127.0.0.1:{port}/metrics"
    finally:
        process.kill()
        process.wait()


def page(url: str) -> str:
    """The samples that the dialect reads, with their types."""
    deadline = time.monotonic() + 10
    answer = send_request(HttpRequest("GET", url, {}, reads=True), 5.0)
    while not isinstance(answer, HttpResponse):
        if time.monotonic() > deadline:
            raise SystemExit(f"{url} does not answer")
        time.sleep(0.1)
        answer = send_request(HttpRequest("GET", url, {}, reads=True), 5.0)
    dialect = next(one for one in shipped() if one.id == "redis-exporter")
    terms = [term for rules in dialect.rules for rule in rules for term in (*rule.terms, *rule.over)]
    names = {option.name for term in terms for option in term.options} | {*KEPT}
    lines = answer.body.decode().splitlines()
    kept = (line for line in lines if _name(line) in names and not line.startswith("# HELP"))
    used = (line for line in kept if not line.startswith("redis_db_keys") or '"db0"' in line)
    return "".join(f"{re.sub(_SYSTEM, _ANY_SYSTEM, line)}\n" for line in used)


def _name(line: str) -> str:
    return line.split()[2] if line.startswith("#") else line.partition("{")[0].split()[0]


def client(redis: RedisServer, stop: threading.Event) -> None:
    """Writes and reads keys, whatever the answer."""
    from redis.exceptions import RedisError

    with redis.client() as connection:
        number = 0
        while not stop.wait(0.004):
            number += 1
            with suppress(RedisError):
                connection.set(f"session:{number * 7 % KEYS}", "x" * VALUE, ex=3600)
            with suppress(RedisError):
                connection.get(f"session:{number * 11 % KEYS}")


def filled(redis: RedisServer) -> None:
    redis.write_values("session:", VALUE, KEYS // 2, KEYS)


def full(policy: str) -> Callable[[RedisServer], None]:
    def fill(redis: RedisServer) -> None:
        filled(redis)
        redis.set_limit(redis.used_bytes(), policy)

    return fill


@contextmanager
def two_pages(folder: Path, url: str, redis: RedisServer) -> Iterator[None]:
    """Writes the first page, then inside the context clients work, then the second page."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "a.prom").write_text(page(url))
    stop = threading.Event()
    thread = threading.Thread(target=client, args=(redis, stop))
    thread.start()
    try:
        yield
        time.sleep(SECONDS)
    finally:
        stop.set()
        thread.join()
    (folder / "b.prom").write_text(page(url))


CASES: dict[str, Callable[[RedisServer], None]] = {
    "none/redis-exporter-healthy": filled,
    "app.session.store-full/redis-exporter-noeviction": full("noeviction"),
    "app.session.store-full/redis-exporter-evicting": full("allkeys-lru"),
}


def main() -> None:
    """Records every case."""
    program, folder = sys.argv[1], Path(sys.argv[2])
    for name, prepare in CASES.items():
        with RedisServer(RedisSettings(LIMIT_MIB)) as redis, exporter(program, redis) as url:
            prepare(redis)
            with two_pages(folder / name, url, redis):
                pass
    record_replicated(program, folder)
    with RedisServer() as redis:
        with exporter(program, redis) as url, two_pages(folder / "none/redis-exporter-gone", url, redis):
            redis.kill()
        redis.start()
        refused = exporter(program, redis, password="another")  # noqa: S106 - it is wrong
        with refused as url, two_pages(folder / "none/redis-exporter-wrong-password", url, redis):
            pass


def record_replicated(program: str, folder: Path) -> None:
    """A replica that clients write to, and a primary whose replica has fallen silent."""
    with RedisServer() as primary, RedisServer(password=primary.password, replica_of=primary.address) as replica:
        filled(primary)
        while not replica.in_step():
            time.sleep(0.1)
        read_only = folder / "app.session.store-read-only" / "redis-exporter"
        with exporter(program, replica) as url, two_pages(read_only, url, replica):
            pass
        silent = folder / "none" / "redis-exporter-silent-replica"
        with exporter(program, primary) as url, two_pages(silent, url, primary):
            os.kill(replica.pid, signal.SIGSTOP)


if __name__ == "__main__":
    main()
