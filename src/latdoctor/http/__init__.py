"""A way to somebody else's server.

`exchange` is one question and its answer, `address` what a name leads to, `secret` a text that is never shown.
"""
