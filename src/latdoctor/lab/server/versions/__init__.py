"""Versions of the model: the registry and its verified weights, and a canary of two versions behind the router."""
