"""Changes: change logs, and the state of a process."""

from __future__ import annotations

from latdoctor.collectors.base import Collector, SourceReader

NAME = "changes"
TITLE = "changes"
SIGNALS = ("change.config", "change.deployment", "change.model", "change.package", "change.process_start")


def _reader() -> SourceReader:
    from latdoctor.collectors.changes.collector import READER

    return READER


COLLECTOR = Collector(
    name=NAME,
    title=TITLE,
    signals=lambda: frozenset(SIGNALS),
    is_requested=lambda request: bool(request.changes) or request.pid is not None,
    reader=_reader,
    option="--changes FILE",
    cost="reads a file",
)
