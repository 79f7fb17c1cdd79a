"""Chaos test of the scheduler: random faults under load, checked by the API objects only."""
