"""Kubelet API of a node agent: logs, exec, attach, port-forward and statistics over HTTPS."""
