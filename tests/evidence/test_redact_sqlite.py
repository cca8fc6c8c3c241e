"""A profiler's database is stored without its texts and gives the same diagnosis."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from latdoctor.collectors.nsight import COLLECTOR, nvtx, sqlite_rows
from latdoctor.evidence.bundle import Artifact, Bundle, Context
from latdoctor.evidence.bundle_files import opened, save
from latdoctor.evidence.model import Evidence, Window
from latdoctor.evidence.redaction import sqlite
from latdoctor.evidence.redaction.bundle import redacted
from latdoctor.evidence.redaction.redactor import Redactor
from tests.cli.running import run
from tests.collectors.nsight.synthetic_exports import SMALL, Export

CANARY = "c4n4ry"
GPUS = f'{{"Gpus":[{{"Name":"NVIDIA H100","Uuid":"{CANARY}"}}],"Host":"{CANARY}"}}'
# What stands around the activities of an export, and what a stranger may put beside them.
AROUND = f"""
PRAGMA secure_delete = OFF;
CREATE TABLE TARGET_INFO_SYSTEM_ENV (globalVid INTEGER, devStateName TEXT NOT NULL, name TEXT NOT NULL, value TEXT);
INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES (0, '{CANARY}', 'Hostname', '{CANARY}'), (0, 'x', 'GpuInfo', '{GPUS}');
CREATE TABLE PROCESS_STREAMS (globalPid INTEGER, content BLOB UNIQUE);
INSERT INTO PROCESS_STREAMS VALUES (7, '{CANARY}'), (8, x'{CANARY.encode().hex()}');
CREATE TABLE "odd "" name" ("a "" column" TEXT PRIMARY KEY, n INTEGER) WITHOUT ROWID;
INSERT INTO "odd "" name" VALUES ('{CANARY}', 4711);
CREATE INDEX of_streams ON PROCESS_STREAMS (content);
CREATE VIEW seen AS SELECT '{CANARY}';
CREATE TRIGGER told AFTER INSERT ON PROCESS_STREAMS BEGIN SELECT '{CANARY}'; END;
CREATE TABLE gone (x TEXT);
INSERT INTO gone VALUES ('in free pages: {CANARY}');
DROP TABLE gone;
"""  # noqa: S608 — made of a constant


@pytest.fixture
def export(tmp_path: Path) -> Path:
    """An export with secrets at every place, its free pages among them."""
    made = Export().launched(50)
    made.marked(f"step user={CANARY}", 0, 20_000_000, inline=True)
    path = made.written(tmp_path / "run.sqlite", SMALL + "CREATE TABLE NVTX_EVENTS (start, end, eventType, text\n);")
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(AROUND)
    assert f"in free pages: {CANARY}".encode() in path.read_bytes()
    return path


def copy_of(path: Path) -> Path:
    made = path.with_name("copy.sqlite")
    assert sqlite.copied(path, made, Redactor(b"key"))
    return made


def test_no_text_is_left_that_is_not_a_name(export: Path) -> None:
    made = copy_of(export)
    assert CANARY.encode() not in made.read_bytes()
    with closing(sqlite3.connect(made)) as connection:
        assert connection.execute("SELECT value FROM TARGET_INFO_SYSTEM_ENV WHERE name = 'GpuInfo'").fetchall() == [
            ('{"Gpus": [{"Name": "NVIDIA H100"}]}',)
        ]
        assert connection.execute('SELECT n, "a "" column" FROM "odd "" name"').fetchall() == [(4711, "")]
        names = connection.execute("SELECT value FROM StringIds").fetchall()
        assert ("cudaLaunchKernel_v7000",) in names
        assert connection.execute("SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchone() == (50,)
        assert {kind for (kind,) in connection.execute("SELECT type FROM sqlite_master")} == {"table"}


def test_what_was_blanked_is_counted(export: Path) -> None:
    redactor = Redactor(b"key")
    assert sqlite.copied(export, export.with_name("copy"), redactor)
    assert redactor.counts[sqlite.BLANKED] == 7
    assert redactor.counts["user ids"] == 1


def test_copying_a_copy_changes_nothing(export: Path) -> None:
    made = copy_of(export)
    again = made.with_name("again.sqlite")
    assert sqlite.copied(made, again, Redactor(b"other key"))
    assert dump(again) == dump(made)


def dump(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        return list(connection.iterdump())


def seen(path: Path) -> Evidence:
    return COLLECTOR.parse((Artifact("nsight/run.sqlite", "nsight", "run", "run.sqlite", 1.0, path),))


def test_the_copy_gives_the_same_evidence(export: Path) -> None:
    assert seen(copy_of(export)) == seen(export)


def test_samples_give_the_same_evidence(samples: Path, tmp_path: Path) -> None:
    for path in sorted((samples / "nsys").rglob("*.sqlite")):
        made = tmp_path / path.name
        assert sqlite.copied(path, made, Redactor(b"key"))
        assert seen(made) == seen(path)


def test_every_name_that_is_read_is_kept() -> None:
    assert {sqlite_rows.STRINGS, nvtx.NVTX, "TARGET_INFO_GPU"} == sqlite.NAMES.keys()


def test_a_bundle_of_it_holds_no_secret_and_tells_so(export: Path, tmp_path: Path) -> None:
    outcome = run(["collect", "--nsys", str(export), "--to", str(tmp_path / "kept")])
    assert (outcome.code, outcome.err) == (0, "")
    kept = [path for path in (tmp_path / "kept").rglob("*") if path.is_file()]
    assert len(kept) == 2
    assert [path for path in kept if CANARY.encode() in path.read_bytes()] == []
    shown = run(["bundle", "inspect", str(tmp_path / "kept")]).out
    assert "7 texts of databases" in shown
    assert "not looked into" not in shown


def test_a_damaged_one_stays_whole_and_is_named(export: Path, tmp_path: Path) -> None:
    content = export.read_bytes()
    export.write_bytes(content[: len(content) // 2])
    made = Bundle(
        Context("x"), Window(0.0, 1.0), (Artifact("nsight/run.sqlite", "nsight", "run", "run.sqlite", 1.0, export),)
    )
    redactor = Redactor()
    told = save(redacted(made, redactor), tmp_path / "out", "1", redactor)
    with opened(tmp_path / "out") as kept:
        assert told == kept.redaction
        assert kept.redaction is not None
        assert kept.redaction.unread == ("nsight/run.sqlite",)
        assert kept.artifacts[0].read() == export.read_bytes()


def test_ctrl_c_is_no_damage(export: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(Redactor, "text", stopped)
    with pytest.raises(KeyboardInterrupt):
        copy_of(export)
    assert not export.with_name("copy.sqlite").exists()


def test_the_given_file_is_not_touched(export: Path) -> None:
    before = export.read_bytes()
    copy_of(export)
    assert export.read_bytes() == before
    assert sorted(path.name for path in export.parent.iterdir()) == ["copy.sqlite", "run.sqlite"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(data=st.data())
def test_any_damage_is_copied_or_refused(export: Path, data: st.DataObject) -> None:
    content = bytearray(export.read_bytes())
    for _ in range(data.draw(st.integers(1, 8))):
        place = data.draw(st.integers(16, len(content) - 1))
        content[place] = data.draw(st.integers(0, 255))
    damaged, made = export.with_name("damaged.sqlite"), export.with_name("made.sqlite")
    damaged.write_bytes(content[: data.draw(st.integers(100, len(content)))])
    made.unlink(missing_ok=True)
    assert sqlite.copied(damaged, made, Redactor(b"key")) == made.exists()
