"""One HTTP/1.1 request and its response on an accepted connection (asyncio; h11 parses)."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from email.utils import formatdate
from http import HTTPStatus
from typing import Final, Self

import h11

from latdoctor.incident.webhook_request import Response
from latdoctor.sanitize import clean

MAX_HEAD: Final = 16 << 10  # bytes of a request before its body
LINGER: Final = 1.0  # seconds for which a client that still sends may read why it was refused
_READ: Final = 64 << 10
_DISCARDED: Final = 16 << 20  # bytes that are read and dropped of a refused request


class HttpConnection:
    """Reads one request, and closes after its response. Cancel the task that uses it to abort the connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD)
        self._request: h11.Request | None = None
        self._received = 0  # bytes

    @classmethod
    async def opened(cls, client: socket.socket, tls: ssl.SSLContext | None, handshake_seconds: float) -> Self:
        """The connection after its TLS handshake. Raises OSError; ssl.SSLError is one."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=_READ)
        protocol = asyncio.StreamReaderProtocol(reader)
        transport, _ = await loop.connect_accepted_socket(
            lambda: protocol, client, ssl=tls, ssl_handshake_timeout=handshake_seconds if tls else None
        )
        return cls(reader, asyncio.StreamWriter(transport, protocol, reader, loop))

    async def head(self) -> h11.Request | None:
        """The request without its body; None if the client closed without a request.

        Raises h11.RemoteProtocolError, OSError.
        """
        event = await self._event()
        self._request = event if isinstance(event, h11.Request) else None
        return self._request

    async def body(self) -> bytes:
        """The body; its length is limited by the Content-Length. Raises h11.RemoteProtocolError, OSError."""
        content = bytearray()
        while not isinstance(event := await self._event(), h11.EndOfMessage):
            if isinstance(event, h11.Data):
                content += event.data
        return bytes(content)

    async def respond(self, response: Response) -> None:
        """Send the response, and close. Raises OSError."""
        body = f"{clean(response.text)}\n".encode() if response.text else b""
        headers = [*response.headers, ("Date", formatdate(usegmt=True)), ("Connection", "close")]
        if response.status is not HTTPStatus.NO_CONTENT:
            headers += [("Content-Type", "text/plain; charset=utf-8"), ("Content-Length", str(len(body)))]
        sent = h11.Response(status_code=response.status, headers=headers, reason=response.status.phrase)
        self._send(sent)
        if self._request is None or self._request.method != b"HEAD":
            self._send(h11.Data(body))
        self._send(h11.EndOfMessage())
        await self._writer.drain()
        await self._close()

    def abort(self) -> None:
        self._writer.transport.abort()

    async def _close(self) -> None:
        """Close; first read on for a moment if the request is incomplete: a reset would discard the response."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LINGER):
                if self._http.their_state is not h11.DONE:
                    await self._discard()
                self._writer.close()
                await self._writer.wait_closed()

    async def _discard(self) -> None:
        if self._writer.can_write_eof():
            self._writer.write_eof()
        left = _DISCARDED
        while left > 0 and (content := await self._reader.read(_READ)):
            left -= len(content)

    async def _event(self) -> object:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            if self._http.they_are_waiting_for_100_continue:
                self._send(h11.InformationalResponse(status_code=100, headers=[]))
            # h11 limits only a head that is incomplete: no more than that is read before the request is known.
            most = _READ if self._request is not None else max(1, MAX_HEAD - self._received)
            content = await self._reader.read(most)
            self._received += len(content)
            self._http.receive_data(content)
        return event

    def _send(self, event: h11.Event) -> None:
        self._writer.write(self._http.send(event) or b"")
