"""Claims in use on this node: their pods, what drivers have prepared, and the checkpoint.

Start at `claim_info_cache.py`.
"""
