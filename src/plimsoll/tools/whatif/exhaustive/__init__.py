"""Exhaustive search for placements: `search.py` enumerates pods and nodes, `choices.py` enumerates
devices.
"""

from plimsoll.tools.whatif.exhaustive.search import STEPS, Proof, ProofVerdict, prove

__all__ = ["STEPS", "Proof", "ProofVerdict", "prove"]
