"""A cluster at one moment, wherever it is read from: what every question is asked of.

START HERE: `picture.py`. `kinds.py` says what is read, `objects.py` keeps it, `live.py` and `files.py` get
it, `source.py` chooses between the two.
"""

from plimsoll.tools.cluster_state.cluster_state import Picture
from plimsoll.tools.cluster_state.objects import Gap, Objects
from plimsoll.tools.cluster_state.source import Source, read_picture

__all__ = ["Gap", "Objects", "Picture", "Source", "read_picture"]
