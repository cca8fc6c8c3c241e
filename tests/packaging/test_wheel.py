"""The wheel holds all that latdoctor needs: built and installed as a user would, away from the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "latdoctor"
SHIPPED = ("rules", "playbooks", "sops", "alerts")


def call(*arguments: str, folder: Path, **environment: str) -> str:
    """What Python prints when it is started with `arguments` in `folder`; a failure shows what it said."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def files(folder: Path) -> set[str]:
    """Every file below `folder`, but for what Python and the file manager leave behind."""
    found = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return {str(path) for path in found if "__pycache__" not in path.parts}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which the wheel was installed, without its dependencies: those are the environment's."""
    work = tmp_path_factory.mktemp("wheel")
    call("-m", "hatchling", "build", "--target", "wheel", "--directory", str(work), folder=ROOT)
    (wheel,) = work.glob("latdoctor-*.whl")
    target = work / "site"
    call("-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(target), str(wheel), folder=work)
    return target


def test_every_file_of_the_package_is_installed(site: Path) -> None:
    installed = files(site / "latdoctor")
    assert {name for name in installed if not name.startswith("_data/")} == files(PACKAGE)


@pytest.mark.parametrize("name", SHIPPED)
def test_the_shipped_folders_are_installed_whole(site: Path, name: str) -> None:
    assert files(site / "latdoctor" / "_data" / name) == files(ROOT / name)


@pytest.mark.parametrize("name", SHIPPED)
def test_the_installed_package_finds_them(site: Path, name: str) -> None:
    asked = f"from latdoctor.resources import folder; print(folder({name!r}))"
    found = call("-c", asked, folder=site, PYTHONPATH=str(site))
    assert Path(found.strip()) == site / "latdoctor" / "_data" / name


def test_the_installed_catalogue_is_the_same(site: Path) -> None:
    asked = "from latdoctor.evidence.catalogue import catalogue; print(*catalogue(), sep='\\n')"
    installed = call("-c", asked, folder=site, PYTHONPATH=str(site))
    here = call("-c", asked, folder=ROOT)
    assert installed == here
    assert installed.strip()


def test_the_licence_goes_with_it(site: Path) -> None:
    (licence,) = site.glob("latdoctor-*.dist-info/licenses/LICENSE")
    assert licence.read_text() == (ROOT / "LICENSE").read_text()
    assert "Apache License" in licence.read_text()
