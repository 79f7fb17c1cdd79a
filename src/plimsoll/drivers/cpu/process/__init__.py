"""CPU driver process: settings, health and debug pages, metrics. Start at `run.py`."""
