"""One diagnosis, as it comes out of its document, for whatever is arranged for a reader."""

from __future__ import annotations

import pytest

from latdoctor.diagnosis import document
from latdoctor.diagnosis.result import Diagnosis
from tests.cli.running import run
from tests.report.test_document import BUNDLE


@pytest.fixture(scope="module")
def diagnosis() -> Diagnosis:
    return document.parse_diagnosis(run(["diagnose", str(BUNDLE), "-o", "json"]).out.encode())
