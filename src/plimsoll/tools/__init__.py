"""Read-only tools: each returns a report value that renders as text, JSON or YAML; `cli` only parses
arguments.
"""
