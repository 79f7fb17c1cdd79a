"""Nodes of the simulation: a kubelet, its DRA drivers and the hardware that both manage.

START HERE: `simulated_node.py`. The claim manager, its housekeeping, the plugin manager, the writer of
statuses and the plugin framework are the product's; admission, containers, sockets and devices are simulated.
"""
