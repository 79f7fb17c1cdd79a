"""Devices of a node: pools gathered from slices, numbered devices, and their usage by allocations."""
