"""Pods: defaulting, validation of spec and status, and the binding, eviction and resize subresources."""
