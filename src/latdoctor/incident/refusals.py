"""Who was refused for want of the right token: told once in a while, and never a line for each request."""

from __future__ import annotations

import threading

from latdoctor.text import clean

APART = 60.0  # seconds between two lines; an Alertmanager with a wrong token sends again every few seconds


class Refusals:
    """Of all senders together: whoever tries it from many addresses gets no more lines for that."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._told: float | None = None  # when, by the clock that `line` is given
        self._untold = 0

    def line(self, sender: str, now: float, *, showed: bool) -> str:
        """What is to be said of one more request at `now` (seconds, monotonic); empty where that was said just now.

        `showed`: it showed a token, though another one. What it showed is never told: it may be a secret elsewhere.
        """
        with self._guard:
            if self._told is not None and now - self._told < APART:
                self._untold += 1
                return ""
            untold, self._untold, self._told = self._untold, 0, now
        what = "it showed another token than this listener was given" if showed else "it showed no token"
        more = f", and {untold} more were refused since this was last told" if untold else ""
        return (
            f"refused (401) what {clean(sender, 60)} sent: {what}{more}. Next: compare its credentials with --auth-file"
        )
