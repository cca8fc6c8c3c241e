"""Client of the feature store that is called for each request. A failed call does not fail the request."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from latdoctor.decode_errors import UNDECODABLE
from latdoctor.lab.server.config import DependencyConfig
from latdoctor.lab.server.intent_request import RequestContext
from latdoctor.lab.server.metrics import ServerMetrics

if TYPE_CHECKING:
    import aiohttp

KEYS = 1024  # distinct keys that are requested
_MOST_BYTES = 64 * 1024
_MOST_CONNECTIONS = 256
OK = 200


class StoreReply(Struct, frozen=True):
    """The store's reply for a key; `hit`: it was cached."""

    hit: bool
    features: tuple[float, ...]


_DECODER = msgspec.json.Decoder(StoreReply)


class DependencyClient:
    """Keep-alive connections to the store. Used on the event loop only."""

    def __init__(self, settings: DependencyConfig, metrics: ServerMetrics) -> None:
        self._settings = settings
        self._metrics = metrics
        self._session: aiohttp.ClientSession | None = None

    def configure(self, settings: DependencyConfig) -> None:
        self._settings = settings

    async def stage(self, exchange: RequestContext) -> bool:
        """Fetches the features for this request; False if there is none, it is bypassed, or the answer known."""
        settings = self._settings
        if not settings.address or settings.bypass or exchange.cached is not None:
            return False
        exchange.feature = await self._look_up(settings, _key(exchange))
        return True

    async def _look_up(self, settings: DependencyConfig, key: int) -> tuple[float, ...] | None:
        import aiohttp

        if self._session is None:
            connector = aiohttp.TCPConnector(limit=_MOST_CONNECTIONS)
            self._session = aiohttp.ClientSession(connector=connector, trust_env=False)
        timeout = aiohttp.ClientTimeout(total=max(0.001, settings.timeout_ms / 1000))
        try:
            async with self._session.get(_url(settings, key), timeout=timeout, allow_redirects=False) as answer:
                feature = await answer.content.read(_MOST_BYTES)
        except (aiohttp.ClientError, TimeoutError, ValueError, OSError) as error:
            self._metrics.dependency_errors.inc()
            if isinstance(error, TimeoutError):
                self._metrics.dependency_timeouts.inc()
            return None
        try:
            found = _DECODER.decode(feature) if answer.status == OK else None
        except UNDECODABLE:
            found = None
        if found is None:
            self._metrics.dependency_errors.inc()
            return None
        if found.hit:
            self._metrics.dependency_hits.inc()
        return found.features

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()


def _key(exchange: RequestContext) -> int:
    """From the session if there is one, else from the input: equal requests have equal keys."""
    request = exchange.intent_request
    return zlib.crc32((request.session or request.text or str(request.audio_seconds)).encode("utf-8", "replace")) % KEYS


def _url(settings: DependencyConfig, key: int) -> str:
    return f"{settings.url.rstrip('/')}/features/{key}"
