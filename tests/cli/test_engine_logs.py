"""`diagnose FILE` of an engine's log prints its key numbers, what it reports, and since when."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.running import run

FOLDER = Path(__file__).parents[1] / "collectors" / "logs" / "engines"


@pytest.mark.parametrize(
    ("sample", "said"),
    [
        (
            "vllm-stalled.log",
            (
                "3 reports of a dead engine since 22:15:20",
                "2 time-outs between engine processes since 22:11:20",
                "6 waiting since 22:10:20 (0 before)",
                "5 running",
                "KV cache 18.4 % full",
                "0/s output tokens since 22:10:20 (212/s before)",
            ),
        ),
        ("sglang-tensor-parallel.log", ("2 running", "KV cache 100 % full", "KV cache or context full at 02:58:44")),
        ("llama-cpp-slots.log", ("mean time per output token 35 ms",)),
        ("tgi-text.log", ("mean wait", "request refused, queue full at 16:20:50")),
        ("torchserve-new.log", ("mean wait 15 ms", "40.5 ms of compute in the model")),
        ("triton-server.log", ("model not loaded at 12:00:01", "2 × memory pool not used since 12:00:02")),
    ],
)
def test_the_key_numbers_of_an_engine_are_printed(sample: str, said: tuple[str, ...]) -> None:
    """With a cause they stand in -v: the first screen has its evidence instead."""
    out = " ".join(run(["diagnose", "-v", str(FOLDER / sample)]).out.split())
    assert [part for part in said if part not in out] == []


def test_lines_between_those_of_a_busy_access_log_are_read(tmp_path: Path) -> None:
    """A server that logs every request writes hundreds of them between two lines of statistics."""
    request = 'INFO:     10.0.0.4:{} - "POST /v1/chat/completions HTTP/1.1" 200 OK\n'
    line = "INFO 03-01 10:00:{:02d} Avg generation throughput: 9.0 tokens/s, Running: 4 reqs, Waiting: 7 reqs\n"
    busy = "".join(request.format(number) for number in range(300))
    path = tmp_path / "vllm.log"
    path.write_text(busy + line.format(1) + busy + line.format(11) + busy)
    out = run(["diagnose", str(path)]).out
    assert "7 waiting" in out
    assert "4 running" in out


def test_every_sample_fits_one_screen() -> None:
    for path in sorted(FOLDER.glob("*.log")):
        lines = run(["diagnose", str(path)]).out.splitlines()
        assert len(lines) <= 24, path
        assert max(map(len, lines), default=0) <= 80, path
