"""`latdoctor lab model`: versions are added once, and listed with what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from latdoctor.lab.faults.model_files import ModelDamage, damage_version
from tests.cli.running import run


def test_versions_are_added_and_listed(tmp_path: Path) -> None:
    registry = tmp_path / "registry"
    drawn = ["--layers", "1", "--width", "32"]
    first = run(["lab", "model", "add", str(registry), "v1", *drawn])
    assert first.code == 0, first.err
    copied = run(["lab", "model", "add", str(registry), "v2", "--from", str(registry / "v1" / "weights.safetensors")])
    assert copied.code == 0, copied.err
    assert first.out.partition("SHA-256 ")[2] == copied.out.partition("SHA-256 ")[2] != ""
    assert run(["lab", "model", "add", str(registry), "v1", *drawn]).code == 2
    damage_version(registry, "v2", ModelDamage.MISSING)
    listed = run(["lab", "model", "list", str(registry)])
    assert listed.code == 0
    states = {line.split()[0]: line.rpartition("safetensors")[2].strip() for line in listed.out.splitlines()[1:]}
    assert states == {"v1": "ready to load", "v2": "missing-file"}


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["add", "{folder}/r", "../v1"], 2),
        (["add", "{folder}/r", "v1", "--dtype", "fp8"], 2),
        (["add", "{folder}/r", "v1", "--width", "33"], 2),
        (["add", "{folder}/r", "v1", "--from", "{folder}/none"], 1),
        (["list", "{folder}/none"], 1),
    ],
)
def test_what_cannot_be_done_is_refused(tmp_path: Path, arguments: list[str], code: int) -> None:
    done = run(["lab", "model", *(one.format(folder=tmp_path) for one in arguments)])
    assert (done.code, done.out) == (code, "")
    assert done.err
