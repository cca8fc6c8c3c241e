"""The reference server as the process of a container: `python -m latdoctor.lab.cluster.reference_pod`.

It listens on POD_IP and is the replica POD_NAME; LATDOCTOR_ADMIN_TOKEN is the token of its admin interface. The model
sleeps instead of computing (`sleeping_model`), unless `--torch` is given, so that several Pods fit on two processors.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from functools import partial

from latdoctor.errors import LatdoctorError
from latdoctor.lab.server.admin_http import admin_token
from latdoctor.lab.server.config import load_config
from latdoctor.lab.server.serve import ServeOptions, serve
from latdoctor.lab.server.sleeping_model import SleepTimes, sleeping_backend

PORT = 8000


def main(arguments: Sequence[str] | None = None) -> int:
    """The process: exit code 0 after a clean end."""
    parser = argparse.ArgumentParser(prog="python -m latdoctor.lab.cluster.reference_pod", description=__doc__)
    default = SleepTimes()
    parser.add_argument("--port", type=int, default=PORT)
    parser.add_argument("--set", action="append", default=[], metavar="GROUP.KNOB=VALUE", help="of the server")
    parser.add_argument("--torch", action="store_true", help="compute, with torch")
    parser.add_argument("--batch-ms", type=float, default=default.batch * 1e3, help="of a batch, beside its tokens")
    parser.add_argument("--token-ms", type=float, default=default.token * 1e3, help="of each padded token")
    parser.add_argument("--slower", type=float, default=default.slower, help="times as slow")
    parser.add_argument("--load-seconds", type=float, default=default.load, help="until the model is loaded")
    parser.add_argument("--memory-mib", type=int, default=default.memory_mib, help="that the model occupies")
    parser.add_argument("--busy", type=float, default=default.busy, help="share of a batch's time that is computed")
    options = parser.parse_args(arguments)
    times = SleepTimes(
        options.batch_ms / 1e3,
        options.token_ms / 1e3,
        options.load_seconds,
        options.slower,
        options.memory_mib,
        options.busy,
    )
    try:
        served = ServeOptions(
            config=load_config(None, options.set),
            host=os.environ.get("POD_IP", "127.0.0.1"),
            port=options.port,
            replica=os.environ.get("POD_NAME", "0"),
            admin_token=admin_token(None),
        )
        serve(served, None if options.torch else partial(sleeping_backend, times=times))
    except LatdoctorError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
