"""python intake_process.py FOLDER COUNT: processes COUNT alerts in turn and prints each once it was answered."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from latdoctor.errors import LatdoctorError
from latdoctor.incident.alert_intake import IncidentTemplate, Intake
from latdoctor.incident.alertmanager import parse
from latdoctor.incident.sop import loader
from latdoctor.journal.store import Journal

_ONE = '{{"version": "4", "groupKey": "k", "alerts": [{{"status": "firing", "fingerprint": "{0}"}}]}}'

try:
    folder = Path(sys.argv[1])
    about = IncidentTemplate(sop=loader.shipped()[loader.USUAL])
    intake = Intake(Journal.opened(folder / "journal.sqlite"), folder, about)
    for number in range(int(sys.argv[2])):
        intake.take(parse(_ONE.format(number).encode()))
        os.write(1, b"%d\n" % number)  # by one call
except LatdoctorError as error:
    print(error, file=sys.stderr, flush=True)
    sys.exit(1)
