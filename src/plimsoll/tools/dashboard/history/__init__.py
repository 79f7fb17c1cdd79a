"""History of a cluster: how nodes and device classes filled over time, bounded and kept on disk.

`thinning.py` decides which samples are kept, `samples.py` takes and queries them, `store.py` keeps them in a
file, `recorder.py` samples a live cluster.
"""
