"""Drivers: who has devices, tells the cluster of them and hands them out on a node.

`kit` is what a driver is made of, `cpu` the driver for CPUs, `fake` one whose devices are written in a file.
Drivers reach the node only over the wire.
"""
