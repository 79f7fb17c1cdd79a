"""Single-machine cluster: `plimsoll up`, `LocalCluster`, the demo, manifests and the pytest plugin.

START HERE: `up.py` starts and stops the components in order. `settings.py` holds the settings, `serve.py` is
the process, `simulated.py` simulates the nodes of manifests, `ports.py` chooses ports, `console.py` prints
progress.
"""
