"""The life of a pod on a node. Start at `worker.py`.

worker.py       one task for each pod: look, decide, act, tell; with parts.py, what it works with
situation.py    what is known of a pod at one moment, and what can be decided
decisions.py    what to do now (pure); with endings.py, restarts.py, backoff.py, history.py
status.py       the pod's status as the API shows it (pure); with phases.py, conditions.py,
                container_status.py, seen.py
steps.py        claims, sandbox and containers, step by step; environment.py, what containers start with
volumes.py      volumes that the runtime cannot provide (pure)
resizing.py     resizes in place
probes.py       probes; with checks.py, commands.py, and hooks.py for what is done after start, before stop
writer.py       status, events and deletions to the API
"""
