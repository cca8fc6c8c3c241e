"""The incident bench: plays incidents, keeps what was seen of them, diagnoses that, and scores the answers."""
