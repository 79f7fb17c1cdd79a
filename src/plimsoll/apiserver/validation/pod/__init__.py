"""Pods: defaults, the rules of spec and status, and what else is done to them: binding, eviction, resize."""
