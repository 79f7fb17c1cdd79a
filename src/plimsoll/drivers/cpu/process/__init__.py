"""Drivers as processes: settings, pages, metrics. Start at `process.py`."""
