"""Why an HTTP exchange failed: a code for programs, a predicate for messages, and the next step for the operator."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from latdoctor.sanitize import clean


class FailureCode(StrEnum):
    """What went wrong. The last three come with a response, the others without one."""

    DNS = "dns"  # the name has no address
    REFUSED = "refused"  # no process listens on the port
    UNREACHABLE = "unreachable"  # no route to the address, or the proxy is unavailable
    CONNECT_TIMEOUT = "connect_timeout"  # no connection in time
    TIMEOUT = "timeout"  # connected, but no complete response in time
    CERTIFICATE = "certificate"  # the certificate is not trusted, or not of this name
    CA_FILE = "ca_file"  # the file of trusted certificates cannot be used
    INVALID_REQUEST = "invalid_request"  # the address or a header has characters that HTTP forbids
    PROTOCOL = "protocol"  # the connection ended early, or this is not HTTP
    TOO_LARGE = "too_large"  # the body exceeds the limit
    REDIRECT = "redirect"  # another address, which is not followed
    STATUS = "status"  # any other status than 2xx


NEXT_STEPS: Final = {
    FailureCode.DNS: "check the host name",
    FailureCode.REFUSED: "check that the server is up and the port is correct",
    FailureCode.UNREACHABLE: "check the address and the network",
    FailureCode.CONNECT_TIMEOUT: "check the address and the firewall: no connection could be made",
    FailureCode.TIMEOUT: "the server may be overloaded or hanging: check its processes and logs",
    FailureCode.CERTIFICATE: "name the file of the certificate authority, or use the name in the certificate",
    FailureCode.CA_FILE: "name a file of PEM certificates",
    FailureCode.INVALID_REQUEST: "check the address and the token for control characters",
    FailureCode.PROTOCOL: "check that it serves HTTP and has not just restarted",
}


@dataclass(frozen=True, slots=True)
class RequestFailure:
    """`why` is a predicate without any part of the request: `did not answer within 5 s`.

    `begun`: part of the request may have arrived and may have been processed.
    """

    code: FailureCode
    why: str
    begun: bool

    @property
    def next_step(self) -> str:
        return NEXT_STEPS.get(self.code, "")


def connect_failure(error: BaseException) -> tuple[FailureCode, str]:
    """Classify an error of connecting by the operating system's error behind it."""
    import socket
    import ssl

    for cause in _causes(error):
        if isinstance(cause, socket.gaierror):
            return FailureCode.DNS, f"cannot be resolved ({_text(cause)})"
        if isinstance(cause, ssl.SSLCertVerificationError):
            return FailureCode.CERTIFICATE, f"has no trusted certificate ({clean(cause.verify_message, 200)})"
        if isinstance(cause, ssl.SSLError):
            return FailureCode.PROTOCOL, f"cannot be reached by TLS ({clean(str(cause.reason or 'handshake'), 100)})"
        if isinstance(cause, ConnectionRefusedError):
            return FailureCode.REFUSED, "cannot be reached (no process listens on that port)"
        if isinstance(cause, OSError):
            return FailureCode.UNREACHABLE, f"cannot be reached ({_text(cause)})"
    return FailureCode.UNREACHABLE, f"cannot be reached ({type(error).__name__})"


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _text(error: OSError) -> str:
    return clean(error.strerror or type(error).__name__, 200)
