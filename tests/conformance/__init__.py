"""Golden vectors: an input, and what a real Kubernetes did with it.

`python -m tests.conformance SUITE FILE...` runs them; one module per suite holds the comparison.
"""
