"""Rate limit for log lines on refused requests, so that no client can flood the log."""

from __future__ import annotations

from dataclasses import dataclass

APART = 60.0  # seconds between two lines of a kind; an Alertmanager with a wrong token sends again every few seconds


@dataclass(slots=True)
class _Kind:
    logged_at: float
    suppressed: int = 0


class RefusalLog:
    """One line per kind of refusal and APART, with the number of those suppressed since. For one thread."""

    def __init__(self) -> None:
        self._kinds: dict[str, _Kind] = {}

    def line(self, kind: str, what: str, next_step: str, now: float) -> str:
        """Log line for one more refusal at `now` (monotonic seconds); empty within APART of the last of its kind."""
        last = self._kinds.get(kind)
        if last is not None and now - last.logged_at < APART:
            last.suppressed += 1
            return ""
        more = f"; {last.suppressed} more since the last report" if last is not None and last.suppressed else ""
        self._kinds[kind] = _Kind(now)
        return f"{what}{more}. Next: {next_step}"
