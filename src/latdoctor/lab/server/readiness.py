"""The state of one server as its metrics page shows it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from latdoctor.lab.server.errors import LoadShed, Unavailable


class Readiness:
    """Used on the event loop only."""

    def __init__(self) -> None:
        self.warm = False
        self.draining = False  # the server is shutting down
        self.set_aside = False  # until the operator ends it
        self.in_flight = 0

    @property
    def ready(self) -> bool:
        return self.warm and not self.away

    @property
    def away(self) -> bool:
        """Whether requests shall go elsewhere."""
        return self.draining or self.set_aside

    @property
    def state(self) -> str:
        if self.away:
            return "draining"
        return "ready" if self.warm else "starting"

    @contextmanager
    def request(self, most: int) -> Iterator[None]:
        """One request on its way. Raises Unavailable while the server starts, LoadShed where `most` are on their way.

        While it drains, what still reaches it is answered: closing the door is the listening socket's affair.
        """
        if not self.warm:
            raise Unavailable("starting", "the model is being made ready")
        if self.in_flight >= most:
            raise LoadShed(503, "queue-full", "too many requests are on their way", retry_after=1)
        self.in_flight += 1
        try:
            yield
        finally:
            self.in_flight -= 1
