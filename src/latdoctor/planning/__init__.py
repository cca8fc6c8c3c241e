"""What engineers ask between incidents: what load will come, and what to have ready for it."""
