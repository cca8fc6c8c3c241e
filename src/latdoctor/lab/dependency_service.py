"""Feature store called by the server for each request: features by key, cached for a while.

`GET /features/KEY` → `{"key": …, "hit": true, "features": […]}`. A key that is not cached is a miss: the features are
fetched from a slower store (a wait of `miss_seconds`) and are kept for `ttl` seconds. With a ttl of 0 every
request is a miss. `python -m latdoctor.lab.dependency_service` prints its address once it answers.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import sys
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence

import msgspec
from msgspec import Struct
from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from latdoctor.errors import LatdoctorError, UsageError
from latdoctor.lab.hardened_http_server import HttpServer, stop_event

FEATURES = 8
LONGEST_KEY = 200


class StoreSettings(Struct, frozen=True):
    """Lifetime and number of the cached keys, and the time of a miss."""

    ttl: float = 300.0  # seconds
    max_keys: int = 10_000
    miss_seconds: float = 0.0


class FeatureStore:
    """Features by key, the longest unused dropped first. The caller passes the clock (seconds)."""

    def __init__(self, settings: StoreSettings, now: Callable[[], float] = time.monotonic) -> None:
        """Raises UsageError for invalid settings."""
        if settings.ttl < 0 or settings.max_keys < 1 or settings.miss_seconds < 0:
            raise UsageError("a store needs ttl >= 0, max_keys >= 1 and miss_seconds >= 0")
        self._settings = settings
        self._now = now
        self._kept_until: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept_until)

    def look_up(self, key: str) -> bool:
        """Whether the key is kept."""
        until = self._kept_until.get(key)
        if until is None or until <= self._now():
            self._kept_until.pop(key, None)
            return False
        self._kept_until.move_to_end(key)
        return True

    def keep(self, key: str) -> None:
        """Keeps the key from now on."""
        if self._settings.ttl == 0:
            return
        self._kept_until[key] = self._now() + self._settings.ttl
        self._kept_until.move_to_end(key)
        while len(self._kept_until) > self._settings.max_keys:
            self._kept_until.popitem(last=False)


def features(key: str) -> tuple[float, ...]:
    """The features of a key: made from its digest, so always the same; each in 0..1."""
    digest = hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()
    return tuple(byte / 255 for byte in digest[:FEATURES])


def build(settings: StoreSettings | None = None) -> Starlette:
    """The service as an ASGI application. Raises UsageError for invalid settings."""
    chosen = settings or StoreSettings()
    store = FeatureStore(chosen)
    registry = CollectorRegistry()
    lookups = Counter("dependency_lookups", "Keys asked for", ("result",), registry=registry)
    Gauge("dependency_keys", "Keys kept", registry=registry).set_function(lambda: len(store))

    async def look_up(request: Request) -> Response:
        key = request.path_params["key"]
        if len(key) > LONGEST_KEY:
            refusal = {"error": "key-too-long", "detail": f"a key may have {LONGEST_KEY} characters"}
            return _json(refusal, status=414)
        hit = store.look_up(key)
        lookups.labels("hit" if hit else "miss").inc()
        if not hit:
            if chosen.miss_seconds > 0:
                await asyncio.sleep(chosen.miss_seconds)
            store.keep(key)
        return _json({"key": key, "hit": hit, "features": features(key)})

    async def healthz(_: Request) -> Response:
        return _json({"status": "ok"})

    async def page(_: Request) -> Response:
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    return Starlette(routes=[Route("/features/{key}", look_up), Route("/healthz", healthz), Route("/metrics", page)])


def _json(value: object, *, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")


async def serve(settings: StoreSettings, host: str, port: int, announce: Callable[[str], None]) -> None:
    """Serves until SIGTERM or SIGINT. `announce` gets the address once it answers.

    Raises OperationError where the port is not available, UsageError for invalid settings.
    """
    listening = HttpServer(build(settings), host=host, port=port, drain_seconds=5)
    stop_requested = stop_event()
    await listening.start()
    announce(listening.url)
    await stop_requested.wait()
    await listening.stop()


def main(arguments: Sequence[str] | None = None) -> int:
    """The process: exit code 0 after a clean end."""
    parser = argparse.ArgumentParser(prog="python -m latdoctor.lab.dependency_service", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--ttl", type=float, default=StoreSettings().ttl, help="seconds a key is kept; 0: not at all")
    parser.add_argument("--max-keys", type=int, default=StoreSettings().max_keys)
    parser.add_argument("--miss-seconds", type=float, default=StoreSettings().miss_seconds)
    options = parser.parse_args(arguments)
    settings = StoreSettings(ttl=options.ttl, max_keys=options.max_keys, miss_seconds=options.miss_seconds)
    try:
        asyncio.run(serve(settings, options.host, options.port, lambda url: print(url, flush=True)))
    except LatdoctorError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
