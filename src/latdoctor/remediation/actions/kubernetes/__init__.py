"""Actions on the objects of a Kubernetes cluster: workloads, autoscalers, Pods, nodes and quotas."""
