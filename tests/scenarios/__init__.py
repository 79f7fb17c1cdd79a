"""Scenarios: given objects and an event, the expected charges."""
