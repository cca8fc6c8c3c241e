"""This machine and one process, from /proc and control groups."""
