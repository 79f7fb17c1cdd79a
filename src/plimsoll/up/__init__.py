"""Single-machine cluster: `plimsoll up`, `LocalCluster`, the demo, manifests and the pytest plugin.

START HERE: `up.py`, its parts and their order. `settings.py` says what is wanted, `serve.py` is the process,
`simulated.py` plays nodes of manifests, `ports.py` and `console.py` are what people see of it.
"""
