"""One pod's life, from the queue to a node. Imports api, cel, ledger and allocate; no I/O, no clock.

START at `cycle.py`: `schedule_one` reads as the story. Objects make up a `Snapshot`; a pod becomes a `Task`;
`filters/` say where it may go, `score/` where it goes best, `devices` chooses devices and charges as one
question; a `Placement` is assumed on the snapshot at once and written down by `bind`, whose every step can be
undone. `queue` knows who is next and which event wakes whom; `preemption` who must go. Implements document
000 (scheduling workflow) and section 3 of the accounting semantics.
"""
