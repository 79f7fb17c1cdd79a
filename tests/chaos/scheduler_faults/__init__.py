"""Chaos test of the scheduler: random faults under load, judged by the API objects alone."""
