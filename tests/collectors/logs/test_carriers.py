"""Journald's export and verbose output and the pieces of a container runtime are read as the lines that they carry."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latdoctor.collectors.file_kinds import FileKind, recognise
from latdoctor.collectors.logs import carriers
from latdoctor.collectors.logs import collector as logs
from latdoctor.errors import SourceError
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import Event, Evidence

FAILED = b"RuntimeError: CUDA error: device-side assert triggered"
XID = b"NVRM: Xid (PCI:0000:17:00): 48, pid=12, DBE (double bit error)"
MULTI = b'Traceback (most recent call last):\n\n  File "/srv/a.py", line 3, in f\n' + FAILED


def entry(message: bytes, *fields: bytes) -> bytes:
    binary = b"MESSAGE\n" + struct.pack("<Q", len(message)) + message
    lines = [b"__CURSOR=s=1f;i=2", b"__REALTIME_TIMESTAMP=1772692930500000", *fields]
    return b"\n".join([*lines, binary if b"\n" in message else b"MESSAGE=" + message, b"PRIORITY=3"]) + b"\n\n"


EXPORT = entry(XID, b"_TRANSPORT=kernel") + entry(MULTI, b"_TRANSPORT=stdout", b"_PID=71", b"SYSLOG_IDENTIFIER=serve")
VERBOSE = (
    b"Thu 2026-03-05 06:42:10.500000 UTC [s=1f;i=2;b=3;m=4;t=5;x=6]\n    PRIORITY=3\n    _TRANSPORT=kernel\n"
    b"    _HOSTNAME=rack2\n    MESSAGE=" + XID + b"\n"
    b"Thu 2026-03-05 06:42:10.500000 UTC [s=1f;i=3;b=3;m=4;t=5;x=6]\n    _TRANSPORT=stdout\n    _PID=71\n"
    b"    SYSLOG_IDENTIFIER=serve\n    _HOSTNAME=rack2\n    MESSAGE=Traceback (most recent call last):\n             "
    + FAILED
    + b"\n"
)
STAMP = b"2026-03-05T06:42:10.500000001Z"
PIECES = (
    b"%s stdout F INFO ready\n%s stderr P RuntimeError: CUDA er\n%s stdout F INFO busy\n"
    b"%s stderr P ror: device-side \n%s stderr F assert triggered\n%s stdout F INFO done\n"
) % ((STAMP,) * 6)  # fmt: skip


DMESG = (
    b'''{
   "dmesg": [
      {
         "fac": "kern",
         "pri": "err",
         "time":     91.550102,
         "msg": "'''
    + XID
    + b""""
      },{
         "pri": "info",
         "time":     92.000000,
         "msg": "two\\nlines of \\"text\\""
      }
   ]
}
"""
)


def read(content: bytes) -> Evidence:
    return logs.READER.parse([Artifact("logs/k", "logs", "k", "k", 1.78e9, content)])


def of(content: bytes, signal: str) -> list[Event]:
    return [one for one in read(content).events if one.signal == signal]


@pytest.mark.parametrize("content", [EXPORT, VERBOSE], ids=["export", "verbose"])
def test_a_journal_is_read_with_its_times(content: bytes, tmp_path: Path) -> None:
    (xid,), (error,) = of(content, "log.xid"), of(content, "log.cuda_error")
    assert (xid.fields["code"], xid.time, error.time) == (48.0, 1772692930.5, 1772692930.5)
    assert error.fields["pid"] == "71"
    (tmp_path / "journal.txt").write_bytes(content)
    known = recognise(tmp_path / "journal.txt")
    assert known is not None
    assert known.kind == FileKind.LOG


def test_a_line_in_pieces_is_one_line() -> None:
    (error,) = of(PIECES, "log.cuda_error")
    assert error.time == pytest.approx(1772692930.5)
    assert error.origin.place == "line 5"


def test_a_json_record_in_pieces_is_one_record() -> None:
    record = json.dumps({"level": "error", "padding": "x" * 20_000, "message": FAILED.decode()}).encode()
    pieces = b"%s stdout P %s\n%s stdout F %s\n" % (STAMP, record[:16_384], STAMP, record[16_384:])
    assert len(of(pieces, "log.cuda_error")) == 1


def test_pieces_of_a_long_plain_line_are_searched_one_by_one() -> None:
    content = b"%s stdout P %s\n%s stdout F %s\n" % (STAMP, b"token " * 2000, STAMP, FAILED)
    (error,) = of(content, "log.cuda_error")
    assert error.origin.place == "line 2"


def test_pieces_without_an_end_are_read() -> None:
    assert len(of(b"%s stderr P %s\n" % (STAMP, FAILED), "log.cuda_error")) == 1


@pytest.mark.parametrize("content", [EXPORT, VERBOSE, PIECES], ids=["export", "verbose", "pieces"])
def test_line_numbers_stay_those_of_the_file(content: bytes) -> None:
    joined = b"".join(carriers.unwrapped([content]))
    assert joined.count(b"\n") == content.count(b"\n")


def test_blocks_may_end_anywhere_between_lines() -> None:
    lines = PIECES.splitlines(keepends=True)
    assert b"".join(carriers.unwrapped(lines)) == b"".join(carriers.unwrapped([PIECES]))


def test_a_plain_log_is_passed_through() -> None:
    blocks = [b"2026-03-05 06:42:10 INFO ready\n", b"stdout P x\n"]
    assert list(carriers.unwrapped(blocks)) == blocks


@settings(deadline=None, max_examples=150)
@given(content=st.sampled_from([EXPORT, VERBOSE, PIECES]), data=st.data())
def test_damage_ends_in_evidence_or_an_error(content: bytes, data: st.DataObject) -> None:
    for _ in range(data.draw(st.integers(0, 5))):
        place = data.draw(st.integers(0, len(content)))
        piece = data.draw(st.sampled_from([b"", b"\n", b"\n\n", b"\xff", b"MESSAGE\n", b" P ", b"=" * 300]))
        content = content[:place] + piece + content[place + data.draw(st.integers(0, 30)) :]
    try:
        read(content)
    except SourceError:
        return


@pytest.mark.parametrize("content", [DMESG, json.dumps(json.loads(DMESG)).encode()], ids=["printed", "compact"])
def test_dmesg_as_json_is_read_as_lines_of_the_kernel(content: bytes, tmp_path: Path) -> None:
    (xid,) = of(content, "log.xid")
    assert xid.fields["code"] == 48.0
    assert xid.text.startswith("[   91.550102] NVRM: Xid")
    (tmp_path / "dmesg.json").write_bytes(content)
    recognised = recognise(tmp_path / "dmesg.json")
    assert recognised is not None
    assert recognised.kind is FileKind.LOG


@pytest.mark.parametrize("cut", range(0, len(DMESG), 7))
def test_dmesg_as_json_that_is_cut_or_has_no_time_raises_nothing(cut: int) -> None:
    for content in (DMESG[:cut], DMESG.replace(b'"time"', b'"then"')[:cut]):
        try:
            read(content)
        except SourceError:
            continue
