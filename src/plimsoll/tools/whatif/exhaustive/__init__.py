"""Whether any placement exists: `search.py` goes through pods and nodes, `choices.py` through devices."""

from plimsoll.tools.whatif.exhaustive.search import STEPS, Found, Proof, Verdict, prove

__all__ = ["STEPS", "Found", "Proof", "Verdict", "prove"]
