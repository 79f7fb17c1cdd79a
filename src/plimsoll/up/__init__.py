"""Single-machine cluster: `plimsoll up`, `LocalCluster`, the demo, manifests and the pytest plugin.

START HERE: `up.py` starts and stops the components in order. `settings.py` has the settings, `serve.py` the
process, `simulated.py` the simulated nodes of manifests, `ports.py` the choice of ports, `console.py` the
progress output.
"""
