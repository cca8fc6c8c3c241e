"""A Kubernetes cluster on one machine: the real control plane, and a kubelet that runs a process for each container."""
