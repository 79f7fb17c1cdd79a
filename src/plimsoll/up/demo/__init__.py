"""Demo of `plimsoll up`: a small cluster and the example of KEP-5517.

START HERE: `play.py`. `two_ledgers.py` simulates separate accounting, `story.py` has the texts, `*.yaml` the
objects.
"""

from plimsoll.up.demo.play import play_demo

__all__ = ["play_demo"]
