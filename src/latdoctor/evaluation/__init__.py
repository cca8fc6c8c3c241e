"""The diagnosis benchmark: records incidents of a real server, diagnoses them, and scores the diagnoses."""
