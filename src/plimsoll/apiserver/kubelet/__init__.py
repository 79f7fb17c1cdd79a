"""Access to the kubelets of nodes: pod logs, exec, attach and port-forward."""
