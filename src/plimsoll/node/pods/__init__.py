"""Pod workers: the lifecycle of each pod on a node. Start at `worker.py`.

worker.py          one task per pod: observe, decide, act, report; dependencies.py, its collaborators
pod_state.py       observed state of a pod, and the actions that can follow
pod_actions.py     what to do now (pure); with termination.py, restart_policy.py, backoff.py,
                   lost_containers.py
container_stopper.py  stopping containers, with their preStop hooks
status.py          the pod's API status (pure); with phases.py, conditions.py, container_status.py,
                   status_input.py
steps.py           claims, sandbox and containers, step by step; environment.py, env and command
volumes.py         volumes that the runtime cannot provide (pure)
pod_resize.py      in-place resize
probes.py          probes; with handlers.py, command_runner.py, and lifecycle_hooks.py
writer.py          status, events and deletions to the API
"""
