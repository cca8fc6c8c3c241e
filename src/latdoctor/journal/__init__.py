"""Append-only log of all observations, decisions and actions, and the locks of their processes.

`store` is the journal, `entry` one hash-chained line, `database` the SQLite file, `unfinished_write` reads it after a
killed write, `locks` allow one run per target, `state_dir` is their folder.
"""
