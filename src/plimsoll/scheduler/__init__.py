"""Scheduler: assigns pods to nodes. Pure Python without I/O or clocks, except for `process/`.

START at `cycle.py`: `schedule_one` is one scheduling attempt. `snapshot/` holds the cluster state, `pod_info`
a pod with its claims; `filters/` and `devices/` decide on which nodes the pod fits, `scores/` ranks those
nodes. A `Placement` is assumed on the snapshot at once and written by `binding/`, whose steps are idempotent.
`queue/` orders pending pods, `queueing_hints` decides which event wakes which pod, and `preemption/` selects
victims. Semantics: docs/spec/keps.md and docs/spec/accounting.md, "Scheduler".
"""
