"""Fake driver: simulated devices (GPUs, network cards, accelerators) described by a YAML file.

Start at `device_file.py` for the file format (docs/drivers.md, "Devices from a file"), at `devices.py` for
the devices on a node, and at `driver.py` for preparing claims. The built-in files are `gpus.yaml`,
`nics.yaml` and `accelerators.yaml` in this directory.
"""
