"""Golden vectors: inputs, and the results of real Kubernetes components.

`python -m tests.conformance SUITE FILE...` runs them; one module per suite holds the comparison.
"""
