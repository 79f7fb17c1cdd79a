"""Stand-in for kube-apiserver in memory: synchronous, deterministic, without I/O and clocks.

`ApiServer` has kube-apiserver's rules for versions, conflicts, watches, bookmarks, 410 and the writes of pods
and claims. Parsing, defaults, error texts and server-side apply come from `plimsoll.apiserver`; storage,
watches and the rules of writes are its own, and `test_api.py` compares the answers of both.

It does not check permissions, quotas, limit ranges, service accounts, or the form of names and values. It
keeps unknown fields and the spelling of quantities, has one version of each kind, and separate events for the
groups "" and events.k8s.io. Volumes get no finalizers. `managedFields` exist once something was applied, so
that only forced applies are exact.
"""

from __future__ import annotations

from tests.simulation.api.server import ApiServer
from tests.simulation.api.store import Change
from tests.simulation.api.watches import Watch

__all__ = ["ApiServer", "Change", "Watch"]
