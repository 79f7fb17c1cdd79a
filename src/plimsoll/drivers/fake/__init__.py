"""A driver whose devices stand in a file: GPUs with partitions, network cards, accelerators.

Start at `reading.py` for the file (docs/drivers.md, "Devices from a file"), at `devices.py` for what becomes
of it on a node, and at `driver.py` for how claims are served. The files `gpus.yaml`, `nics.yaml` and
`accelerators.yaml` beside this one are ready to use.
"""
