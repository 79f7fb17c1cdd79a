"""Resource metrics API (`metrics.k8s.io`): usage of nodes and pods, as metrics-server serves it."""
