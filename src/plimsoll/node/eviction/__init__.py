"""Node-pressure eviction: `thresholds` define when, `usage` measures, `manager` decides and evicts.

`local_storage` evicts pods over their own limits of storage.
"""
