"""A process that journals an incident is killed at its calls: the timeline is whole up to there, and goes on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from latdoctor.incident.state import incidents_in
from latdoctor.incident.timeline import timeline
from latdoctor.incident.timeline_model import Timeline
from latdoctor.journal.state_dir import JOURNAL
from latdoctor.journal.store import Journal
from latdoctor.report import machine_formats, timeline_cloudevents
from latdoctor.report import timeline as reports
from tests.crash.sweep import KILLED, killed_at, must_trace, points
from tests.crash.telling import INCIDENT
from tests.journal.builders import files

WRITES = ("write", "pwrite64", "ftruncate", "fsync", "fdatasync", "unlink", "mkdir")
NOTES = 2
EVERY = 3  # of the calls


@pytest.fixture(autouse=True)
def _traced() -> None:
    must_trace()


def command(folder: Path) -> list[str]:
    return [sys.executable, "-m", "tests.crash.telling", str(folder / "state"), str(NOTES)]


def told(folder: Path) -> Timeline | None:
    """The timeline by reading alone: no file is written, not even where a write was not finished."""
    before = files(folder)
    found = incidents_in(Journal.reading(folder / "state" / JOURNAL).entries())
    page = timeline(found[0]) if found else None
    assert files(folder) == before
    return page


def message(page: Timeline | None) -> list[str]:
    return [moment.message for moment in page.moments] if page else []


WHOLE = ["incident opened by hand: slow (of checkout)", "note 0", "note 1", "incident closed: resolved"]


def test_timeline_after_a_kill_at_any_call(tmp_path: Path) -> None:
    seen: set[int] = set()
    (tmp_path / "whole").mkdir()
    swept = points(command(tmp_path / "whole"), WRITES)
    assert message(told(tmp_path / "whole")) == WHOLE
    for k in range(1, swept + 1, EVERY):
        folder = tmp_path / str(k)
        folder.mkdir()
        ended = killed_at(command(folder), k, WRITES)
        assert ended.returncode == KILLED
        acknowledged = ended.stdout.split()
        page = told(folder)
        digests = [moment.digest for moment in page.moments] if page else []
        # All that was acknowledged, and at most the entry that was on the disk before that could be said.
        assert digests[: len(acknowledged)] == acknowledged
        assert len(digests) <= len(acknowledged) + 1
        assert message(page) == WHOLE[: len(digests)]
        if page:
            assert page.last.digest == digests[-1]
            assert page.open == (len(digests) < len(WHOLE))
            forms = (
                machine_formats.render_timeline,
                reports.render_markdown,
                reports.render_text,
                timeline_cloudevents.render,
            )
            for render in forms:
                assert INCIDENT in render(page).replace("\\", "")
        seen.add(len(digests))
        subprocess.run(command(folder), check=True, capture_output=True, timeout=60)
        after = told(folder)
        assert after
        assert message(after) == WHOLE
        assert [moment.digest for moment in after.moments][: len(digests)] == digests  # nothing was told otherwise
    assert seen == {0, 1, 2, 3, 4}
