"""Nsight Systems exports made for tests, by a schema file of a real one (`sqlite_master` as text) or by a small one.

`Export` holds what happened; `written` makes the tables that the schema has and that something happened for, as the
exporter does: a table without rows does not exist.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from latdoctor.collectors.nsight import COLLECTOR
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import Evidence

MS = 1_000_000  # ns
PID, TID = 7, 9
GLOBAL_PID = PID << 24
GLOBAL_TID = GLOBAL_PID | TID

Row = Mapping[str, object]
_TABLE = re.compile(r"CREATE TABLE (\w+) \((.*?)\n?\);", re.DOTALL)

# What a reader of another project wrote for its own tests: the least that some export ever had.
SMALL = """
CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, shortName INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, correlationId INTEGER, nameId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, end INTEGER, deviceId INTEGER, copyKind INTEGER, bytes INTEGER);
"""
GRAPHS = """
CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (
    start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, graphId INTEGER, graphExecId INTEGER);
"""


@dataclass
class Export:
    """What a capture saw; times in ns."""

    rows: dict[str, list[Row]] = field(default_factory=dict)
    names: dict[str, int] = field(default_factory=dict)

    def add(self, table: str, **row: object) -> None:
        self.rows.setdefault(table, []).append(row)

    def name(self, text: str) -> int:
        return self.names.setdefault(text, len(self.names) + 1)

    def kernel(self, start: int, end: int, device: int = 0, link: int = 0, pid: int = GLOBAL_PID) -> None:
        name = self.name("gemm")
        self.add(
            "CUPTI_ACTIVITY_KIND_KERNEL", start=start, end=end, deviceId=device, shortName=name, demangledName=name,
            globalPid=pid, correlationId=link,
        )  # fmt: skip

    def call(self, name: str, start: int, end: int, result: int = 0, tid: int = GLOBAL_TID, link: int = 0) -> None:
        self.add(
            "CUPTI_ACTIVITY_KIND_RUNTIME", start=start, end=end, nameId=self.name(name), returnValue=result,
            globalTid=tid, eventClass=0, correlationId=link,
        )  # fmt: skip

    def marked(self, name: str, start: int, end: int, inline: bool = False, **more: object) -> None:
        """An NVTX range; its name is inline or a registered string."""
        told = {"text": name} if inline else {"textId": self.name(name)}
        self.add("NVTX_EVENTS", **{"start": start, "end": end, "eventType": 59, "globalTid": GLOBAL_TID} | told | more)

    def copy(self, start: int, end: int, kind: int, size: int, source: int, target: int) -> None:
        self.add(
            "CUPTI_ACTIVITY_KIND_MEMCPY", start=start, end=end, deviceId=0, copyKind=kind, bytes=size, srcKind=source,
            dstKind=target,
        )  # fmt: skip

    def launched(self, count: int, every: int = MS, lasts: int = MS // 2) -> Export:
        """`count` kernels at an even pace, each with its launch."""
        for number in range(count):
            start = number * every
            self.call("cudaLaunchKernel_v7000", start, start + 5000)
            self.kernel(start + 10_000, start + 10_000 + lasts)
        return self

    def written(self, path: Path, schema: str) -> Path:
        """A database with the tables of `schema` for which there is a row."""
        tables = {name: f"CREATE TABLE {name} ({body}\n);" for name, body in _TABLE.findall(schema)}
        for text, number in self.names.items():
            self.add("StringIds", id=number, value=text)
        connection = sqlite3.connect(path)
        for table, rows in self.rows.items():
            if table in tables:
                _fill(connection, tables[table], table, rows)
        connection.commit()
        connection.close()
        return path


def _fill(connection: sqlite3.Connection, create: str, table: str, rows: Sequence[Row]) -> None:
    connection.execute(create)
    told = connection.execute(f"PRAGMA table_info({table})").fetchall()
    columns = {str(name): bool(required) for _, name, _, required, *_ in told}
    for row in rows:
        # What a column must have and the test does not speak of is 0; what the schema lacks is not written.
        full = {name: row.get(name, 0 if required else None) for name, required in columns.items()}
        marks = ", ".join("?" * len(full))
        named = ", ".join(f'"{name}"' for name in full)
        connection.execute(f"INSERT INTO {table} ({named}) VALUES ({marks})", list(full.values()))  # noqa: S608


def artifact(content: bytes | Path, source: str = "made.sqlite") -> Artifact:
    return Artifact("nsight/made.sqlite", "nsight", "made", source, 1.0, content)


def parsed(content: bytes | Path) -> Evidence:
    return COLLECTOR.parse((artifact(content),))
