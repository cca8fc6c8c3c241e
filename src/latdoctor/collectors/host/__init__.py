"""The machine under the server, and one watched process."""
