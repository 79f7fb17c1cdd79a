"""Deterministic simulator of a cluster: all components in one process, in virtual time, from one seed."""
