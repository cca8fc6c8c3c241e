"""The benchmark of the cluster: injects faults into a service of the lab's cluster, and scores the diagnoses."""
