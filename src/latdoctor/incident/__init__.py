"""One incident, from its alert to its post-mortem, computed from the journal.

`events` defines the journaled bodies, `state` folds them into incidents, `lookup` finds the incident of a command.
The other modules compute documents from the journal, which `report` prints.
"""
