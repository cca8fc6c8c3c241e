"""Conversation state: what is kept of a session, and where (this process, Redis, or the client's transcript)."""
