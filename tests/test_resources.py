"""The shipped folders are found from a checkout, and a broken installation is reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from latdoctor import resources
from latdoctor.errors import OperationError

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("name", ["rules", "playbooks", "sops", "alerts"])
def test_found_from_a_checkout(name: str) -> None:
    assert resources.folder(name) == ROOT / name


def test_what_ships_inside_the_package_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "src" / "latdoctor"
    for folder in (package / "_data" / "rules", tmp_path / "rules"):
        folder.mkdir(parents=True)
    monkeypatch.setattr(resources, "_PACKAGE", package)
    assert resources.folder("rules") == package / "_data" / "rules"


def test_a_missing_folder_is_named_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "_PACKAGE", tmp_path / "lib" / "latdoctor")
    with pytest.raises(OperationError, match="shipped rules/ folder is missing — reinstall latdoctor"):
        resources.folder("rules")
