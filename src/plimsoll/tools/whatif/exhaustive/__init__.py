"""Whether any placement exists: `search.py` goes through pods and nodes, `choices.py` through devices."""

from plimsoll.tools.whatif.exhaustive.search import STEPS, Proof, ProofVerdict, ProvenPlacement, prove

__all__ = ["STEPS", "Proof", "ProofVerdict", "ProvenPlacement", "prove"]
