"""Memory driver: memory and huge pages of each NUMA node as devices, and containers bound to their nodes.

Start at `driver.py`; `docs/memory.md` describes its use.
"""
