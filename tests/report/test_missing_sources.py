"""Checks that only lack a source are folded into one line; nothing else is folded with them."""

from __future__ import annotations

import msgspec
import pytest

from latdoctor.diagnosis.codes import CheckStatus, ReasonCode
from latdoctor.diagnosis.result import Diagnosis, Reason
from latdoctor.report import diagnosis_text

SERVER, LOG = "--server URL (or --metrics FILE)", "--log FILE"
NO_SOURCE = Reason(ReasonCode.SOURCE_NOT_GIVEN, f"needs {SERVER} or {LOG}", (SERVER, LOG))
NOT_SHOWN = Reason(ReasonCode.NOT_SHOWN, "nothing shows server.rss", signals=("server.rss",))
GAP = Reason(ReasonCode.GAP, "vLLM: one page tells no rate")


def with_reasons(diagnosis: Diagnosis, *reasons: tuple[Reason, ...]) -> Diagnosis:
    """The diagnosis with one unevaluated check for each tuple of reasons."""
    checks = tuple(
        msgspec.structs.replace(check, status=CheckStatus.NOT_EVALUATED, reasons=why)
        for check, why in zip(diagnosis.checks, reasons, strict=False)
    )
    return msgspec.structs.replace(diagnosis, checks=checks)


@pytest.mark.parametrize(
    ("reasons", "folded"),
    [
        ((NO_SOURCE,), True),
        ((NO_SOURCE, NOT_SHOWN), True),
        ((NO_SOURCE, GAP), False),
        ((NOT_SHOWN,), False),
        ((GAP,), False),
        ((), False),
    ],
)
def test_only_a_missing_source_is_folded(reasons: tuple[Reason, ...], folded: bool, diagnosis: Diagnosis) -> None:
    (check,) = with_reasons(diagnosis, reasons).checks
    assert check.source_missing is folded
    assert bool(diagnosis_text.summary(with_reasons(diagnosis, reasons))) is folded


def test_the_summary_counts_what_each_source_would_show(diagnosis: Diagnosis) -> None:
    only_log = Reason(ReasonCode.SOURCE_NOT_GIVEN, f"needs {LOG}", (LOG,))
    found = with_reasons(diagnosis, (NO_SOURCE,), (NO_SOURCE,), (only_log,), (GAP,), (NOT_SHOWN,))
    assert diagnosis_text.summary(found) == f"no source for 3 checks: {LOG} would show 3 of them, {SERVER} 2"
