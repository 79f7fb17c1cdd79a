"""What runs containers: as local processes, or as nothing but states.

making.py    a container as its spec, CDI files and hooks want it together
none.py      states only, for simulated nodes
process.py   real processes: START HERE
life.py      one container as a process
adoption.py  what an earlier agent has left
shim.py      the small process beside every container; a program of its own
confinement.py what a container's process does before its command runs; the other half of the shim
shims.py     the agent's end of a shim: start it, find it again, signal it
commands.py  what a container runs
launching.py what is recorded of it, and what its shim is told
folder.py    what is kept of pods and containers on disk
"""

from plimsoll.node.runtime.exec_spec import ProcessSettings
from plimsoll.node.runtime.process import ProcessRuntime
from plimsoll.node.runtime.simulated import NoneRuntime

__all__ = ["NoneRuntime", "ProcessRuntime", "ProcessSettings"]
