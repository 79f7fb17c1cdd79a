"""DRA drivers: publish the devices of a node and prepare them for claims.

`kit` is what a driver is made of, `cpu` the driver for CPUs, `fake` one whose devices are written in a file.
Drivers reach the node only over the wire.
"""
