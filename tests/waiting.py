"""Deadline of tests that wait for a condition."""

from __future__ import annotations

#: Seconds after which a condition counts as never true. A test waits only as long as it must, so that this
#: is reached by failures alone; a busy machine may need most of it.
DEADLINE = 120.0
