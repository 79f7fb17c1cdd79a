"""A pause for the search for cycles while a great many objects are made.

Owns `without_collection`.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collection() -> Iterator[None]:
    """Without looking for cycles meanwhile: what is read is trees, and looking again and again costs most."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
