"""The scheduler's view of the cluster: nodes, ledgers, devices, claims. Start at `snapshot.py`."""
