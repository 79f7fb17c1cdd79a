"""Kubernetes API objects and values: quantities, typed views, wire forms, feature gates, selectors.

Imports only `errors` and `common`.
"""
