"""The machine of a node: `machine` reads it and computes allocatable, `file` describes one in a file."""
