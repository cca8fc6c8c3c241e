"""The peers' own environment: .cache/peers, with the versions of requirements.txt.

torch is not installed twice: a .pth file lets that environment see the one of the interpreter that runs this, so that
all three servers compute with the very same build. Delete the folder to have it made anew.
"""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

from latdoctor.errors import OperationError

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".cache" / "peers"
REQUIREMENTS = Path(__file__).with_name("requirements.txt")
_STAMP = FOLDER / "requirements-installed.txt"


def ready() -> Path:
    """The folder of the environment's programs; made first where it is missing or old. Raises OperationError."""
    wanted = REQUIREMENTS.read_text()
    programs = FOLDER / "bin"
    if _STAMP.exists() and _STAMP.read_text() == wanted:
        return programs
    sys.stderr.write(f"Setting up {FOLDER} with LitServe and BentoML; a minute.\n")
    venv.create(FOLDER, with_pip=True, clear=True)
    install = ["-m", "pip", "install", "-qq", "--no-deps", "--requirement", str(REQUIREMENTS)]
    if subprocess.run([str(programs / "python"), *install], stdout=sys.stderr, check=False).returncode:
        raise OperationError("LitServe and BentoML could not be installed", next_step="see what pip said above")
    _share_torch(programs)
    _STAMP.write_text(wanted)
    return programs


def _share_torch(programs: Path) -> None:
    import torch

    asked = [str(programs / "python"), "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])"]
    own = Path(subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip())
    # Behind the environment's own packages on the path: only what is missing there comes from here.
    (own / "share-torch.pth").write_text(f"{Path(torch.__file__).parents[1]}\n")
