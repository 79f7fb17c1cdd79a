"""What runs on a machine: admission, claims, containers, enforcement, PodResources. Imports api, ledger, wire
and cluster (its client).

Start at `agent.py`: a pod's way from the watch to its containers and back. Each part stands alone behind a
small protocol, so that a machine can be simulated by the thousand or driven for real.
"""
