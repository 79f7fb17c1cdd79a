"""The cluster's ledger on a page: nodes, devices, claims, what waits and why, what-if, live.

START HERE: `server.py` (routes) and `service.py` (answers). `worker.py` answers questions about one moment
while the cluster goes on, `changes.py` says what a change touches, `events.py` tells open pages. `assets/` is
the page.
"""

from plimsoll.tools.dashboard.server import DEFAULT_PORT, Dashboard

__all__ = ["DEFAULT_PORT", "Dashboard"]
