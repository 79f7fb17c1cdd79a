"""`plimsoll dashboard`: web page of nodes, devices, claims, pending pods and what-if, with live updates.

START HERE: `server.py` (routes) and `service.py` (queries). `query_worker.py` runs queries on a consistent
state while the cluster changes, `changes.py` computes what a change affects, `event_stream.py` notifies open
pages. `assets/` is the page.
"""

from plimsoll.tools.dashboard.server import DEFAULT_PORT, Dashboard

__all__ = ["DEFAULT_PORT", "Dashboard"]
