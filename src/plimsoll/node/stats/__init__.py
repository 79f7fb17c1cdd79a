"""Resource usage of a node, its pods and containers, as the kubelet API reports it."""
