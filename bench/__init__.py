"""Benchmarks: `python -m bench.NAME`; each prints figures and ratios, none is a test."""
