"""Pause of the cyclic garbage collector while many objects are created or many modules imported."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collection(*, keep: bool = False) -> Iterator[None]:
    """Disable the cyclic collector in the block: what it creates stays, so collections only cost time.

    With `keep`, everything that exists at the end of the block is exempt from later collections, too.
    """
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if keep:
            gc.freeze()
        if was:
            gc.enable()
