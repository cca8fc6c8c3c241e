"""The clock of an API server against that of this machine, by the dates of its answers."""

from __future__ import annotations

import math
import threading
from email.utils import parsedate_to_datetime


class ServerClock:
    """How far the server's clock is ahead, as far as its answers prove it. Safe for several threads.

    A date is that of one second at some moment between request and answer: each answer narrows what is possible.
    """

    def __init__(self) -> None:
        self._least, self._most = -math.inf, math.inf
        self._lock = threading.Lock()

    def answered(self, date: str, sent: float, received: float) -> None:
        """`date`: the header; the times of request and answer are unix seconds by the clock of this machine."""
        try:
            shown = parsedate_to_datetime(date).timestamp()
        except (TypeError, ValueError):
            return  # no date, or none that can be read
        least, most = shown - received, shown + 1.0 - sent
        with self._lock:
            self._least, self._most = max(least, self._least), min(most, self._most)
            if self._least > self._most:  # one of the clocks was set meanwhile
                self._least, self._most = least, most

    @property
    def ahead(self) -> float:
        """Seconds, negative where it is behind; 0 where the clocks may agree."""
        with self._lock:
            return max(self._least, 0.0) + min(self._most, 0.0)
