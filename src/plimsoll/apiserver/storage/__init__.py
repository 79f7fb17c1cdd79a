"""Where the objects of the embedded cluster live: in memory to read, in one file to last.

store.py       START HERE: reads, writes, watches
records.py     a key, an object as it is stored, an event
refusals.py    the answers of Kubernetes to a write, a list or a watch that cannot be
head.py        the objects as they are now, in order
history.py     what changed lately, and the feeds that follow it
past.py        lists as of an older revision
log.py         the file: one row for every write
lock.py        one process for each file, and how far it had come
loading.py     from the file to the memory, every row checked
writer.py      the thread that commits groups of writes
compaction.py  which rows of the file no longer count
files.py       making, copying and putting aside of whole files
salvage.py     what can still be read in a damaged file
recovery.py    a new store from it
"""

from plimsoll.apiserver.storage.event_history import WatchCursor
from plimsoll.apiserver.storage.files import copy_store
from plimsoll.apiserver.storage.records import ListPage, ObjectKey, StoredObject, StoreEvent
from plimsoll.apiserver.storage.recovery import RecoveryReport, recover, restore
from plimsoll.apiserver.storage.store import Store

__all__ = [
    "ListPage",
    "ObjectKey",
    "RecoveryReport",
    "Store",
    "StoreEvent",
    "StoredObject",
    "WatchCursor",
    "copy_store",
    "recover",
    "restore",
]
