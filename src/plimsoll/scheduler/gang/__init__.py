"""Pod groups: pods that are scheduled together (`scheduling.k8s.io` PodGroup, KEP-4671).

START at `cycle.py`: `schedule_group` is one scheduling attempt of a group. `search` finds placements that
scheduling one pod after the other misses, `preemption` selects victims for a whole group, `members` knows
which pods belong to a group.
"""
