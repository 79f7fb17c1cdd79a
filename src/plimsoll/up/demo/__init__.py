"""The demo of `plimsoll up`: a small cluster of many kinds, and the story of document 000 in it.

START HERE: `play.py`. `books.py` computes what two books would do, `story.py` has the words, `*.yaml` the
objects.
"""

from plimsoll.up.demo.play import play_demo

__all__ = ["play_demo"]
