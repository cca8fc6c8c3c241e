"""Applies a limit to a process: `python -m latdoctor.lab.faults.limit_holder cpu|memory PID SHARE LIFETIME`.

Prints "in force" once it is applied. Lifts it at the end of standard input, or after LIFETIME seconds.
"""

from __future__ import annotations

import select
import signal
import sys
import time
from collections.abc import Callable, Sequence

from latdoctor.errors import OperationError
from latdoctor.lab.faults.cgroup_cpu_quota import quota_group
from latdoctor.lab.faults.page_reclaim import ROUND_SECONDS, Reclaim
from latdoctor.lab.faults.process_limits import IN_FORCE


def main(arguments: Sequence[str]) -> int:
    kind, pid, share, lifetime = arguments[0], int(arguments[1]), float(arguments[2]), float(arguments[3])
    # End of input ends the limit. A signal to the process group must not end this process first.
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    end = time.monotonic() + lifetime
    try:
        if kind == "cpu":
            with quota_group(pid, share):
                _hold(end, lifetime, lambda: True)
        else:
            with Reclaim(pid, share) as reclaim:
                reclaim.check()
                reclaim.round()
                _hold(end, ROUND_SECONDS, reclaim.round)
    except OperationError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _hold(end: float, every: float, again: Callable[[], bool]) -> None:
    """Until `end` or the end of standard input; `again` is called so often, until it says that there is no more."""
    print(IN_FORCE, flush=True)
    while (left := end - time.monotonic()) > 0:
        readable, _, _ = select.select([sys.stdin], [], [], min(every, left))
        if readable or not again():
            return


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
