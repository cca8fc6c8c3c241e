"""How much load a service takes: the measured limit within an SLO, a queueing model of it, and replicas for a rate."""
