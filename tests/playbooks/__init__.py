"""Scenarios of a complete agent with its API server, drivers and containers."""
