"""The configuration of running servers, read from their documented APIs beside the metrics page."""

from __future__ import annotations

from latdoctor.collectors.base import Collector, SourceReader

NAME = "server_config"
TITLE = "configuration of the server"


def provided_signals() -> frozenset[str]:
    """The signals of all kinds of configuration."""
    from latdoctor.collectors.server_config.configurations import KINDS

    return frozenset(signal for kind in KINDS for signal in kind.signals)


def _reader() -> SourceReader:
    from latdoctor.collectors.server_config.collector import READER

    return READER


COLLECTOR = Collector(
    name=NAME,
    title=TITLE,
    signals=provided_signals,
    is_requested=lambda request: bool(request.pages),
    reader=_reader,
    option="",  # it is read with `--server URL`
    cost="some requests to the server's API",
)
