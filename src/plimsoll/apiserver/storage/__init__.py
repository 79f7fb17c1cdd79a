"""Storage of the embedded cluster: objects in memory for reads, one file for durability.

store.py          START HERE: reads, writes, watches
records.py        keys, stored objects, events
current_state.py  current objects, in order
event_history.py  recent events, and the cursors of watches
snapshots.py      lists as of an older revision
log.py            the file: one row for every write
lock.py           one process per file, and the last revision it committed
loading.py        reads the file into memory and checks every row
writer.py         thread that commits batches of writes
compaction.py     rows of the file that can be deleted
files.py          creation, copies and renames of files
salvage.py        reads what is left in a damaged file
recovery.py       creates a store from it, or from a backup
"""

from plimsoll.apiserver.storage.event_history import WatchCursor
from plimsoll.apiserver.storage.files import copy_store
from plimsoll.apiserver.storage.records import ListPage, ObjectKey, StoredObject, StoreEvent, type_prefix
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
    "type_prefix",
]
