"""An open-loop load generator: the schedule is fixed before the run, so a slow server does not slow it down."""
