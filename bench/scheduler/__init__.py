"""Scheduler benchmarks: the cycle alone, over HTTP, and against the API server's write rate."""
