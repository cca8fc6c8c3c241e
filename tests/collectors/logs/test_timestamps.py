"""Every form of a time, alone and behind what loggers and carriers write before it."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latdoctor.collectors.base import CollectRequest
from latdoctor.collectors.logs import collector as logs
from latdoctor.collectors.logs.line_prefix import APPLICATION, KERNEL, clean_line, parse
from latdoctor.collectors.logs.month_names import month_number
from latdoctor.collectors.logs.timestamps import stamp_at
from latdoctor.collectors.runner import SystemClock
from latdoctor.evidence.bundle import Bundle, Context
from latdoctor.evidence.bundle_files import opened, save
from latdoctor.evidence.model import Window

WRITTEN = datetime(2025, 6, 1, 12, 0, tzinfo=UTC).timestamp()
AT = datetime(2025, 5, 19, 10, 13, 13, tzinfo=UTC).timestamp()

WITHOUT_ZONE = [
    "2025-05-19 10:13:13",
    "2025-05-19T10:13:13",
    "2025/05/19 10:13:13",
    "2025/05/19 - 10:13:13",
    "2025.05.19 10:13:13",
    "2025-05-19_10:13:13",
    "2025-05-19:10:13:13",
    "2025-5-19 10:13:13",
    "20250519 10:13:13",
    "20250519T101313",
    "20250519-10:13:13",
    "05-19 10:13:13",
    "05/19 10:13:13",
    "May 19 10:13:13",
    "may 19 10:13:13",
    "MAY 19 10:13:13",
    "Mai 19 10:13:13",
    "mai 19 10:13:13",
    "mayo 19 10:13:13",
    "mag 19 10:13:13",
    "maj 19 10:13:13",
    "мая 19 10:13:13",
    "5月 19 10:13:13",
    "19 May 10:13:13",
    "19. Mai 10:13:13",
    "19 mai 2025 10:13:13",
    "19/May/2025:10:13:13",
    "19-May-2025 10:13:13",
    "19.05.2025 10:13:13",
    "19/05/2025 10:13:13",
    "05/19/2025 10:13:13",
    "05/19/2025-10:13:13",
    "05/19/25 10:13:13",
    "25/05/19 10:13:13",
    "May 19, 2025 10:13:13 AM",
    "5/19/2025 10:13:13 AM",
    "May 19 2025 10:13:13",
    "Mon May 19 10:13:13 2025",
    "Mo Mai 19 10:13:13 2025",
    "lun. mai 19 10:13:13 2025",
    "Mo 19. Mai 10:13:13 2025",
    "Mon 2025-05-19 10:13:13",
    "Monday, 19 May 2025 10:13:13",
    "I0519 10:13:13",
    "E519 10:13:13",
    "I20250519 10:13:13",
]
WITH_ZONE = [
    "2025-05-19T10:13:13Z",
    "2025-05-19 10:13:13 UTC",
    "2025-05-19T12:13:13+0200",
    "2025-05-19T12:13:13+02:00",
    "2025-05-19 12:13:13+02",
    "2025-05-19 12:13:13 +0200",
    "2025-05-19 12:13:13 CEST",
    "2025-05-19 11:13:13 CET",
    "2025-05-19 12:13:13 GMT+2",
    "2025-05-19 18:13:13 UTC+08:00",
    "2025-05-19 03:13:13 PDT",
    "2025-05-19 02:13:13 PST",
    "2025-05-19 05:13:13 EST",
    "2025-05-19 04:13:13 CST",
    "2025-05-19 15:43:13 IST",
    "2025-05-19 19:13:13 JST",
    "2025-05-19 03:13:13 -0700 PDT",
    "2025-05-19 03:13:13 -0700 PDT m=+0.008",
    "2025-05-19T03:13:13\u221207:00",
    "2025-05-19 12:13:13 Europe/Berlin",
    "2025-05-19T12:13:13+02:00[Europe/Berlin]",
    "19/May/2025:03:13:13 -0700",
    "Mon May 19 12:13:13 CEST 2025",
    "Mo 19. Mai 12:13:13 CEST 2025",
    "Mon 2025-05-19 12:13:13 CEST",
    "20250519T101313Z",
    "1747649593",
    "1747649593.000",
    "1747649593000",
    "1747649593000000",
    "1747649593000000000",
    "W0000 00:00:1747649593.000000",
]
BEFORE = [
    "", "INFO ", "[INFO] ", "WARNING: ", "[GIN] ", "(EngineCore_DP0 pid=812) INFO ", "(EngineCore_0 pid=812) ", "> ",
    "> > ", "[pod/vllm-7d9c/server] ", "vllm-1  | ", "vllm.1.x8k@node-2    | ", "level=info ts=", "[rank3]:",
    "[1,0]<stderr>:", "vllm-7d9cf-x2x9k server ", "logs/server.log:", "server.log:17:",
    "2025-05-19T10:13:13.900Z stdout F ", "2025-05-19T10:13:13.900000000Z ",
]  # fmt: skip


@pytest.mark.parametrize("stamp", WITHOUT_ZONE)
def test_a_time_without_a_zone_is_read_as_utc(stamp: str) -> None:
    line = parse(f"{stamp} the engine stopped", WRITTEN)
    assert (line.time, line.zoned, line.message, line.writer) == (AT, False, "the engine stopped", APPLICATION)


def test_the_thread_behind_a_time_of_glog_is_no_year() -> None:
    line = parse("I0519 10:13:13.250000  2019 model_lifecycle.cc:461] loading: sum:1", WRITTEN)
    assert line.time == AT + 0.25


@pytest.mark.parametrize("stamp", WITH_ZONE)
def test_a_zone_is_applied(stamp: str) -> None:
    line = parse(f"{stamp} the engine stopped", WRITTEN)
    assert (line.time, line.zoned, line.message, line.writer) == (AT, True, "the engine stopped", APPLICATION)


@pytest.mark.parametrize("fraction", [".250", ",250", ":250", ".250000", ",250000000"])
@pytest.mark.parametrize("stamp", ["2025-05-19 10:13:13", "05-19 10:13:13", "I0519 10:13:13", "19.05.2025 10:13:13"])
def test_a_fraction_is_read(stamp: str, fraction: str) -> None:
    assert parse(f"{stamp}{fraction} ready", WRITTEN).time == AT + 0.25


@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize(
    "stamp", ["2025-05-19 10:13:13", "05-19 10:13:13", "[2025-05-19 10:13:13 TP0]", "2025-05-19T10:13:13Z"]
)
def test_a_time_behind_other_words_is_found(before: str, stamp: str) -> None:
    if before.endswith(("server ", ":17:")) and not stamp.startswith("2025"):
        return  # stern and grep precede times with a year only
    line = parse(f"{before}{stamp} ready: 7 blocks", WRITTEN)
    assert (line.time, line.message, line.writer) == (AT, "ready: 7 blocks", APPLICATION)


WHOLE = {
    "vLLM": ("INFO 05-19 10:13:13 [loggers.py:111] Engine 000: x", "[loggers.py:111] Engine 000: x"),
    "vLLM worker": ("(Worker_TP1 pid=77) ERROR 05-19 10:13:13 [multiproc.py:5] boom", "[multiproc.py:5] boom"),
    "SGLang": ("[2025-05-19 10:13:13 DP0 TP3] Decode batch. #running-req: 1", "Decode batch. #running-req: 1"),
    "GIN": ("[GIN] 2025/05/19 - 10:13:13 | 200 |  1.5s | 10.0.0.1 | POST", "| 200 |  1.5s | 10.0.0.1 | POST"),
    "slog": ('time=2025-05-19T10:13:13.000Z level=INFO msg="ready"', 'level=INFO msg="ready"'),
    "logrus": ('time="2025-05-19T10:13:13Z" level=info msg=x', "level=info msg=x"),
    "go-kit": ('level=info ts=2025-05-19T10:13:13Z caller=a.go:1 msg="x"', 'caller=a.go:1 msg="x"'),
    "trtexec": ("[05/19/2025-10:13:13] [I] Throughput: 1 qps", "[I] Throughput: 1 qps"),
    "Ray": ("2025-05-19 10:13:13,000\tINFO worker.py:1 -- x", "INFO worker.py:1 -- x"),
    "loguru": ("2025-05-19 10:13:13.000 | INFO     | a:b:1 - x", "| INFO     | a:b:1 - x"),
    "TensorFlow": ("2025-05-19 10:13:13.000000: I a.cc:1] x", "I a.cc:1] x"),
    "nginx": ("2025/05/19 10:13:13 [error] 7#7: *1 upstream timed out", "[error] 7#7: *1 upstream timed out"),
    "klog": ("E0519 10:13:13.000000    1 a.go:12] x", "1 a.go:12] x"),
    "PyTorch": ("[rank0]:[E519 10:13:13.000000000 ProcessGroupNCCL.cpp:629] x", "ProcessGroupNCCL.cpp:629] x"),
    "supervisord": ("2025-05-19 10:13:13,000 INFO spawned: 'x' with pid 7", "INFO spawned: 'x' with pid 7"),
    "systemd": ("Mon 2025-05-19 12:13:13 CEST gpu-7 vllm[9]: x", "x"),
    "journald short-unix": ("1747649593.000000 gpu-7 vllm[9]: x", "x"),
    "RFC 5424": ("<34>1 2025-05-19T10:13:13Z gpu-7 vllm 9 ID47 [a@1 b=\"c\"] x", "x"),
    "kubectl --timestamps --prefix": ("[pod/a/b] 2025-05-19T10:13:13.0Z INFO 05-19 12:13:13 [a.py:1] x", "[a.py:1] x"),
    "Apache": ("[Mon May 19 10:13:13.000000 2025] [core:error] x", "[core:error] x"),
    "colours": ("\x1b[32mINFO\x1b[0m 05-19 10:13:13 \x1b[1mready\x1b[0m", "ready"),
    "CRLF": ("INFO 05-19 10:13:13 ready\r\n", "ready"),
}  # fmt: skip


@pytest.mark.parametrize(("raw", "message"), WHOLE.values(), ids=WHOLE)
def test_a_line_of_a_program(raw: str, message: str) -> None:
    line = parse(clean_line(raw.encode()), WRITTEN)
    assert (line.time, line.message, line.writer) == (AT, message, APPLICATION)


KERNEL_LINES = {
    "dmesg -T in German": "[Mo Mai 19 10:13:13 2025] NVRM: x",
    "dmesg -T in French": "[lun. mai 19 10:13:13 2025] NVRM: x",
    "dmesg -T in Chinese": "[一 5月 19 10:13:13 2025] NVRM: x",
    "syslog in Spanish": "may 19 10:13:13 gpu-7 kernel: NVRM: x",
    "syslog in German": "Mai 19 10:13:13 gpu-7 kernel: NVRM: x",
    "syslog in French": "mai 19 10:13:13 gpu-7 kernel: NVRM: x",
    "journald short-full": "Mon 2025-05-19 12:13:13 CEST gpu-7 kernel: NVRM: x",
    "journald short-unix": "1747649593.000000 gpu-7 kernel: NVRM: x",
    "syslog through kubectl": "2025-05-19T10:13:14.5Z May 19 10:13:13 gpu-7 kernel: NVRM: x",
    "RFC 5424": "<4>1 2025-05-19T10:13:13Z gpu-7 kernel - - - NVRM: x",
}


@pytest.mark.parametrize("text", KERNEL_LINES.values(), ids=KERNEL_LINES)
def test_a_line_of_the_kernel(text: str) -> None:
    line = parse(text, WRITTEN)
    assert (line.time, line.message, line.writer) == (AT, "NVRM: x", KERNEL)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2025-05-19T08:13:13.5Z INFO 05-19 10:13:13 ready", AT - 7200),  # the program's clock is local
        ("2025-05-19T15:43:13.5Z 2025-05-19 21:13:13,100 ready", AT + 19800.1),
        ("2025-05-19T10:13:13Z 2025-05-18T10:13:13Z ready", AT - 86400),  # both have a zone: the program's counts
        ("2025-05-19T10:13:13Z 2024-05-19 10:13:13 ready", AT),  # replayed
        ("May 19 10:13:13 gpu-7 vllm[9]: 2025-05-19T10:13:12Z ready", AT - 1),
        ("May 19 10:13:13 gpu-7 vllm[9]: INFO 05-19 12:13:13 ready", AT),
    ],
)
def test_the_zone_of_a_program_follows_from_its_carrier(text: str, expected: float) -> None:
    line = parse(text, WRITTEN)
    assert (line.time, line.message) == (pytest.approx(expected), "ready")


def test_a_year_is_never_in_the_future_and_new_year_is_crossed() -> None:
    written = datetime(2026, 1, 2, 6, 0, tzinfo=UTC).timestamp()
    times = [parse(f"INFO {stamp} x", written).time for stamp in ("12-31 23:59:59", "01-01 00:00:01", "01-02 05:59:59")]
    assert [datetime.fromtimestamp(one or 0, UTC).year for one in times] == [2025, 2026, 2026]
    assert times == sorted(times, key=lambda one: one or 0)
    assert parse("I0104 00:00:00.5 1 a.cc:1] x", written).time == datetime(2025, 1, 4, tzinfo=UTC).timestamp() + 0.5


FRONTS = ["2025-05-19 10:13:13,5", "[2025-05-19 10:13:13]", "2025-05-19T10:13:13Z", "May 19 10:13:13",
          "[2025-05-19 10:13:13 TP0]"]  # fmt: skip


@pytest.mark.parametrize("front", FRONTS)
def test_an_error_without_a_host_is_no_tag_of_syslog(front: str) -> None:
    assert parse(f"{front} CUDA error: unknown error", WRITTEN).message == "CUDA error: unknown error"


NO_TIMES = [
    "ready in 10:13:13",
    "RuntimeError: CUDA error at 10:13",
    "step 05-19 of 20",
    "99-99 12:00:00 x",
    "line 12 10:13:13 x",
    "1747649593 bytes",
    "1747649593, 12, 13",
    "2147483648 tokens",
    "v1.2.3 10:13",
    "10.0.0.1 10:13:13 x",
    "12345678901234567890 x",
    "0000000000 x",
    "D9999 10:13:13 x",
]


@pytest.mark.parametrize("text", NO_TIMES)
def test_what_is_no_time_is_none(text: str) -> None:
    line = parse(text, WRITTEN)
    assert (line.time, line.message) == (None, text)


def test_a_date_that_does_not_exist_gives_no_time() -> None:
    assert parse("2025-02-31 10:13:13 x", WRITTEN).time is None
    assert parse("0026-01-31 10:13:13 x", WRITTEN).time is None


MONTHS = {"Mär": 3, "mrz.": 3, "Août": 8, "févr.": 2, "ene": 1, "dic": 12, "Okt": 10, "декабря": 12, "12月": 12,
          "13月": None, "jui": None, "foo": None, "MAY": 5, "marras": 11, "lis": 11, "Tem": 7}  # fmt: skip


@pytest.mark.parametrize(("word", "month"), MONTHS.items())
def test_month_names(word: str, month: int | None) -> None:
    assert month_number(word) == month


@given(st.one_of(st.text(max_size=400), st.text('0123456789-/:. TZ[]()|+,<>"=pmAMayI月', max_size=400)))
def test_any_text_is_parsed_in_bounded_time(text: str) -> None:
    began = time.process_time()
    line = parse(clean_line(text.encode("utf-8", "replace")), WRITTEN)
    stamp_at(text, 0, WRITTEN)
    assert line.time is None or isinstance(line.time, float)
    assert time.process_time() - began < 0.5


UNITS = ["[", "(a pid=1) ", "> ", "INFO ", "2025-05-19 10:13:13 ", "1", "a ", "a:", "a.", "[a]", " ", "5月 ", "Mon ",
         "May 19 ", "a|", "10:13:13"]  # fmt: skip


@pytest.mark.parametrize("unit", UNITS)
def test_repetitions_take_bounded_time(unit: str) -> None:
    began = time.process_time()
    parse(unit * (4096 // len(unit)), WRITTEN)
    assert time.process_time() - began < 0.1


def test_the_year_comes_from_the_file(tmp_path: Path) -> None:
    path = tmp_path / "old.log"
    path.write_text("INFO 05-19 10:13:12 ready\nERROR 05-19 10:13:13 CUDA error: unknown error\n")
    os.utime(path, (WRITTEN - 365 * 86400, WRITTEN - 365 * 86400))
    collected = logs.READER.collect(CollectRequest(logs=(path,)), SystemClock())
    (event,) = logs.READER.parse(collected.artifacts).events
    assert event.time == datetime(2024, 5, 19, 10, 13, 13, tzinfo=UTC).timestamp()
    saved = tmp_path / "bundle.tar.zst"
    save(Bundle(Context("x"), Window(), collected.artifacts), saved, "0")
    with opened(saved) as bundle:
        assert logs.READER.parse(bundle.artifacts).events == (event,)
