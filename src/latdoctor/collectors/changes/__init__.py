"""What was changed and when: as people and machines noted it, and as a process and its files show it."""
