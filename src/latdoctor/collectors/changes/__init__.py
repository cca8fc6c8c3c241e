"""Changes: change logs, and the state of a process."""
