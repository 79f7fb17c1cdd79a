"""Where the objects of the embedded cluster live: in memory to read, in one file to last.

records.py    a key, an object as it is stored, an event
refusals.py   the answers of Kubernetes to a write or a watch that cannot be
head.py       the objects as they are now, in order
history.py    what changed lately, and the feeds that follow it
log.py        the file: one row for every write
lock.py       one process for each file, and how far it had come
writer.py     the thread that commits groups of writes
store.py      START HERE: reads, writes, watches
rescue.py     copies, and what to do about a damaged file
"""

from plimsoll.cluster.store.history import Feed
from plimsoll.cluster.store.records import Event, Key, Page, Stored
from plimsoll.cluster.store.store import Store

__all__ = ["Event", "Feed", "Key", "Page", "Store", "Stored"]
