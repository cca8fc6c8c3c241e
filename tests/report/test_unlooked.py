"""What was not looked at is folded in the compact answer, and told whole with -v; nothing else is folded with it."""

from __future__ import annotations

import msgspec
import pytest

from latdoctor.diagnosis.result import Diagnosis
from latdoctor.report import presenter
from tests.cli.running import run
from tests.report.test_document import BUNDLE

UNLOOKED = "not looked at: needs --server URL (or --metrics FILE) or --log FILE"


def with_reasons(diagnosis: Diagnosis, *reasons: str) -> Diagnosis:
    """The diagnosis with so many checks, none of them evaluated for these reasons."""
    checks = tuple(
        msgspec.structs.replace(check, status="not-evaluated", reason=reason)
        for check, reason in zip(diagnosis.checks, reasons, strict=False)
    )
    return msgspec.structs.replace(diagnosis, checks=checks)


@pytest.mark.parametrize(
    ("reason", "folded"),
    [
        (UNLOOKED, True),
        (f"{UNLOOKED}; nothing shows server.rss", True),
        (f"{UNLOOKED}; vLLM: one page tells no rate", False),
        ("nothing shows server.rss", False),
        ("page: not exported: m", False),
        ("", False),
    ],
)
def test_only_what_another_source_would_show_is_folded(reason: str, folded: bool, diagnosis: Diagnosis) -> None:
    (check,) = with_reasons(diagnosis, reason).checks
    assert presenter.is_unlooked(check) is folded
    assert bool(presenter.summary(with_reasons(diagnosis, reason))) is folded


def test_the_summary_counts_what_each_source_would_show(diagnosis: Diagnosis) -> None:
    made = with_reasons(diagnosis, UNLOOKED, UNLOOKED, "not looked at: needs --log FILE", "other", "nothing shows x")
    assert presenter.summary(made) == (
        "not looked at: 3 checks, of which --log FILE would show 3, --server URL (or --metrics FILE) 2 (-v)"
    )


def test_reasons_against_health_are_kept_but_for_those(diagnosis: Diagnosis) -> None:
    reasons = (f"infrastructure: gpu-hot — {UNLOOKED}", "framework: b — page is cut", f"application: c — {UNLOOKED}")
    verdict = msgspec.structs.replace(diagnosis.verdict, reasons=reasons)
    made = msgspec.structs.replace(diagnosis, verdict=verdict)
    assert presenter.verdict_reasons(made) == ("framework: b — page is cut", "not looked at: gpu-hot, c")
    one = msgspec.structs.replace(made, verdict=msgspec.structs.replace(verdict, reasons=reasons[:2]))
    assert presenter.verdict_reasons(one) == reasons[:2], "one line is folded into none"


def test_all_of_it_stands_in_the_long_answer() -> None:
    compact, long = (run(["diagnose", str(BUNDLE), *more]).out for more in ([], ["-v"]))
    assert compact.count("not looked at:") == 1
    assert long.count("not looked at: needs") > 3
