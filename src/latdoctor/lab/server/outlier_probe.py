"""Probes of ejected replicas: a small request of the router's own, computed by the model as any other.

A ready page tells that a process lives, not that it computes at its usual speed, and a client's request must not fail
for a test.
"""

from __future__ import annotations

import asyncio
import time

import aiohttp

from latdoctor.lab.server.replica_pool import ReplicaPool

TICK = 0.1  # seconds between two looks
PROBE_SECONDS = 2.0
_TEXT = "where is my order"
_OK = 200


class OutlierProbe:
    """Runs in the router's process, on its event loop."""

    def __init__(self, pool: ReplicaPool, *, tick: float = TICK) -> None:
        self._pool = pool
        self._tick = tick

    async def run(self) -> None:
        """Until it is cancelled."""
        timeout = aiohttp.ClientTimeout(total=PROBE_SECONDS)
        async with aiohttp.ClientSession(timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()) as session:
            while True:
                await asyncio.gather(*(self._probe(session, name) for name in self._pool.to_probe()))
                await asyncio.sleep(self._tick)

    async def _probe(self, session: aiohttp.ClientSession, name: str) -> None:
        began = time.monotonic()
        try:
            async with session.post(f"{self._pool.known(name).url}/v1/intent", json={"text": _TEXT}) as answer:
                failed = answer.status != _OK
        except (aiohttp.ClientError, TimeoutError):
            failed = True
        self._pool.probed(name, failed=failed, seconds=time.monotonic() - began)
