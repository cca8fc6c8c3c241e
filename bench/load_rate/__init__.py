"""Requests per second that one core sends: latdoctor's generator, Locust and k6."""
