"""The life of a pod on a node.

situation.py    what is known of a pod at one moment, and what can be decided
decisions.py    what to do now (pure); with endings.py, restarts.py, backoff.py
status.py       the pod's status as the API shows it (pure)
environment.py  the environment and the command of a container
writer.py       status, events and deletions to the API
worker.py       one task for each pod: look, decide, act, tell
"""
