"""Warnings of a service that a call to another one took too long: `slow query: SELECT … took 2.3 s (limit 0.2 s)`.

Three things must stand in the line: what was called (a store, an address, a download), how long it took, and that its
writer finds this too long. A line that has only two of them may be of a request or of the service's own work.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from latdoctor.collectors.access_log.entry import parse_duration
from latdoctor.collectors.logs.line_events import EventLines, Found
from latdoctor.collectors.logs.line_kind import LineKind
from latdoctor.collectors.logs.line_prefix import LogLine

SIGNAL = "log.dependency_slow"
SIGNALS = (SIGNAL,)

_CALLED = re.compile(
    r"\b(?P<what>redis|valkey|memcached?|postgres(?:ql)?|mysql|mariadb|mongo(?:db)?|cassandra|dynamodb|sqlite|database|sql"
    r"|s3|gcs|minio|blob storage|object store|kafka|rabbitmq|elasticsearch|opensearch|qdrant|milvus|weaviate|pinecone"
    r"|dns|feature[- _]?(?:store|service)|vector[- _]?(?:store|db|database|search)|embedding[- _]?service"
    r"|(?:upstream|downstream|external|remote|backend) (?:call|service|request|api)|download(?:ing)?|fetch(?:ing)?"
    r"|look-?up)\b|https?://",
    re.IGNORECASE,
)
_TOOK = re.compile(
    r"(?:\b(?:took|taken|after|elapsed|duration|latency|finished in|completed in|answered in)\b[ =:]{1,2})"
    r"(?P<time>\d{1,9}(?:\.\d{1,9})? ?(?:ms|msec|milliseconds|s|sec|seconds)?)(?![\w.])",
    re.IGNORECASE,
)
_TOO_LONG = re.compile(
    r"\bslow(?:er|ly)?\b|\b(?:exceed(?:s|ed|ing)?|over|above|longer than|limit|threshold|budget|expected)\b",
    re.IGNORECASE,
)
_OWN = re.compile(r"\b(?:load(?:ed|ing)? (?:the )?(?:model|weights|checkpoint)|HTTP/\d)", re.IGNORECASE)
_LEAST = 0.05  # seconds; a store that is slow by its own standards may still cost a request nothing


def find(line: LogLine) -> Iterator[Found]:
    """The slow call that a line reports."""
    message = line.message
    took, called = _TOOK.search(message), _CALLED.search(message)
    if took is None or called is None or _OWN.search(message) or not _TOO_LONG.search(message):
        return
    text = took["time"].strip()
    duration = parse_duration(text.replace("milliseconds", "ms")) if text[-1].isalpha() else None
    if duration is not None and duration.seconds >= _LEAST:
        yield Found(SIGNAL, {"what": (called["what"] or "address").lower(), "seconds": duration.seconds})


KIND = LineKind(
    "dependency",
    (rb"(?i:\b(?:took|taken|after|elapsed|duration|latency|finished in|completed in|answered in)[ =:]{1,2}[0-9])",),
    lambda artifact: EventLines(artifact, find),
)
