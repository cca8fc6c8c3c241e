"""A real Prometheus for a benchmark: it scrapes one page, into a folder of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from latdoctor.errors import OperationError
from latdoctor.lab.server.supervisor import free_ports


@contextmanager
def prometheus(page: str, job: str, scrape_s: float) -> Iterator[str]:
    """The address of a Prometheus that scrapes `page` every `scrape_s` seconds. Raises OperationError without one."""
    binary = shutil.which("prometheus", path=os.environ.get("LATDOCTOR_PROMETHEUS") or None)
    if binary is None:
        raise OperationError("no Prometheus here", next_step="install it, or name its folder in LATDOCTOR_PROMETHEUS")
    (port,) = free_ports(1)
    with tempfile.TemporaryDirectory(prefix="latdoctor-prometheus-") as folder:
        jobs = f"[{{job_name: {job}, static_configs: [{{targets: ['{urlsplit(page).netloc}']}}]}}]"
        config = Path(folder) / "prometheus.yml"
        config.write_text(f"global: {{scrape_interval: {scrape_s:g}s}}\nscrape_configs: {jobs}\n")
        command = [binary, f"--config.file={config}", f"--storage.tsdb.path={folder}/data"]
        with (
            (Path(folder) / "log").open("wb") as written,
            subprocess.Popen(
                [*command, f"--web.listen-address=127.0.0.1:{port}"], stdout=written, stderr=written
            ) as running,
        ):
            try:
                yield f"http://127.0.0.1:{port}"
            finally:
                running.terminate()
