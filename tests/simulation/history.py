"""History of a case: who did what, in virtual time, as data that is written out only when it is read."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.simulation.faults import Call, Fault

if TYPE_CHECKING:
    from tests.simulation.loop import SimulationLoop

Tree = dict[str, Any]


class FaultDetail(NamedTuple):
    """Fault and the request that it hit."""

    call: Call
    fault: Fault


class WriteDetail(NamedTuple):
    """Object after a write (before it, if it was deleted), and the request that wrote it."""

    call: Call | None
    tree: Tree


class History:
    """Events of a case, in order."""

    def __init__(self, loop: SimulationLoop) -> None:
        self._loop: SimulationLoop | None = loop
        self._events: list[tuple[float, str, str, object]] = []
        #: Request that is being handled by the API server.
        self.request: Call | None = None

    def end(self) -> None:
        """Let go of the case, which is much larger."""
        self._loop = None

    def note(self, who: str, what: str, detail: object = "") -> None:
        if self._loop is not None:
            self._events.append((self._loop.now, who, what, detail))

    def note_fault(self, call: Call, fault: Fault) -> None:
        self.note(call.process, "fault", FaultDetail(call, fault))

    def note_write(self, what: str, tree: Tree) -> None:
        call = self.request
        who = call.process if call is not None else "case"
        self.note(who, what, WriteDetail(call, tree))

    def __len__(self) -> int:
        return len(self._events)

    def lines(self) -> Iterator[str]:
        """Yield a line for each event."""
        for now, who, what, detail in self._events:
            yield f"{now:10.4f}  {who:<16} {_describe(what, detail)}"

    def digest(self) -> str:
        """Return a hash of the whole history: the same seed gives the same."""
        found = blake2b(digest_size=16)
        for line in self.lines():
            found.update(line.encode())
        return found.hexdigest()


def _describe(what: str, detail: object) -> str:
    if isinstance(detail, FaultDetail):
        call, fault = detail
        return f"! {fault.kind.value} ({fault.seconds:.2f} s): {call.key} {call.method} {call.path}"
    if isinstance(detail, WriteDetail):
        request, tree = detail
        meta = tree["metadata"]
        name = "/".join(filter(None, (meta.get("namespace"), meta["name"])))
        by = f" by {request.key} {request.method} {request.path}" if request is not None else ""
        return f"{what} {tree.get('kind')} {name} @{meta.get('resourceVersion')}{_state(tree)}{by}"
    return f"{what} {detail}".rstrip()


def _state(tree: Tree) -> str:
    """Return what a reader wants to know about an object."""
    status, spec = tree.get("status") or {}, tree.get("spec") or {}
    found = []
    match tree.get("kind"):
        case "Pod":
            found.append(f"node={spec.get('nodeName') or '-'}")
            if status.get("phase") not in (None, "Pending"):
                found.append(str(status["phase"]))
        case "ResourceClaim":
            results = ((status.get("allocation") or {}).get("devices") or {}).get("results") or ()
            devices = ",".join(f"{each['pool']}/{each['device']}" for each in results)
            users = ",".join(each["name"] for each in status.get("reservedFor") or ())
            found.append(f"devices={devices or '-'} reserved={users or '-'}")
        case "Lease":
            found.append(f"holder={spec.get('holderIdentity') or '-'}")
    if tree["metadata"].get("deletionTimestamp"):
        found.append("deleting")
    return f" [{' '.join(found)}]" if found else ""
