"""Snapshot: the scheduler's view of nodes, ledgers, devices and claims. START at `snapshot.py`."""
