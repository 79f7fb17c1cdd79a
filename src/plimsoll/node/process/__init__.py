"""Node agent process: settings, one or many nodes, HTTP endpoints. Start at `run.py`."""
