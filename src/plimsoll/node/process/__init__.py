"""The node agent as a process: settings, one or many nodes, pages. Start at `process.py`."""
