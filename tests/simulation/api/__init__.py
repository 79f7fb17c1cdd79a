"""Stand-in for kube-apiserver in memory: synchronous, deterministic, without I/O and clocks.

`ApiServer` has kube-apiserver's rules for versions, conflicts, watches, bookmarks, 410 and the writes of pods
and claims. What is decided once per request (selectors, options, error texts, defaults) comes from
`plimsoll.apiserver`; storage, watches and the rules of writes are its own, and `test_api.py` compares them.

It does not check permissions, formats of names and values, quotas, limit ranges and service accounts; it
keeps unknown fields, and quantities as written; `managedFields` exist only after a server-side apply; events
of the groups "" and events.k8s.io are separate kinds; there is one version of each kind.
"""

from __future__ import annotations

from tests.simulation.api.server import ApiServer
from tests.simulation.api.store import Change
from tests.simulation.api.watches import Watch

__all__ = ["ApiServer", "Change", "Watch"]
