"""Shadow mode: decide about the pods of another scheduler without writing, and report the differences.

START HERE: `run.ShadowProcess` follows a cluster. `comparison` compares one decision with a binding, on the
state before it; `report` counts and keeps the results.
"""
