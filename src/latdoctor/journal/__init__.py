"""The append-only log of everything that was observed, decided and done, and the locks of those who do it.

`store` is the journal, `entry` one line of it and what holds the lines together, `database` the file, `unfinished` what
a killed writer leaves beside it, `locks` one run on one target, `state` the folder of all that.
"""
