"""Scenarios of a CPU driver with a machine, a runtime and a client that prepares claims."""
