"""Feedback control: batch bound, wait and admission of a server, and weights of replicas, follow measured latency."""
