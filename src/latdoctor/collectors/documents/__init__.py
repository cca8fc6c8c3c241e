"""Text that is neither a log nor a metrics page: output of commands, results of load tests, exports of other tools.

A file may hold several of them (a pasted thread, a bug report): it is split, and each part is read by its format.
"""

from __future__ import annotations

from latdoctor.collectors.base import Collector, SourceReader

NAME = "documents"
TITLE = "command output and exports"


def _signals() -> frozenset[str]:
    from latdoctor.collectors.documents.formats import ALL

    return frozenset(signal for one in ALL for signal in one.provides)


def _reader() -> SourceReader:
    from latdoctor.collectors.documents.reader import READER

    return READER


COLLECTOR = Collector(
    name=NAME,
    title=TITLE,
    signals=_signals,
    is_requested=lambda request: bool(request.documents),
    reader=_reader,
    option="",
    cost="reads a file",
)
