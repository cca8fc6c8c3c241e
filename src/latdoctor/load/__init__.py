"""An open-loop load generator: the schedule is fixed before the run, and nothing the server does can slow it down."""
