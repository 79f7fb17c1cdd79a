"""Pod admission on the node: the kubelet's admission check, critical-pod preemption and in-place resize.

`admission_handler` charges admitted pods to the node's own ledger; `allocation` is what a pod was allocated;
`preemption` selects victims for a critical pod; `resize` checks and plans resizes of running pods,
`resize_manager` records them.
"""
