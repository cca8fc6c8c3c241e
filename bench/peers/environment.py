"""The peers' environment: .cache/peers, with the versions of requirements.txt.

torch is not installed twice: a .pth file lets that environment import the one of this interpreter, so that all three
servers compute with the same build. Delete the folder to set it up anew.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from bench.harness import environment

REQUIREMENTS = Path(__file__).with_name("requirements.txt")


def ready() -> Path:
    """The folder of the environment's programs, set up if it is missing or outdated. Raises OperationError."""
    import torch

    python = environment("peers", REQUIREMENTS.read_text(), "--no-deps")
    command = [str(python), "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])"]
    packages = Path(subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip())
    # Behind the environment's own packages on the path: only missing packages come from there.
    (packages / "share-torch.pth").write_text(f"{Path(torch.__file__).parents[1]}\n")
    return python.parent
