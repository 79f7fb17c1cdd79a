"""DRA drivers: publish the devices of a node and prepare them for claims.

`plugin` is the framework for drivers, `cpu` the CPU driver, `fake` one with simulated devices.
Drivers reach the node only over the wire.
"""
