"""Container runtimes: local processes, simulated state only, or a container runtime behind CRI.

process.py            containers as local processes: START HERE
sandboxes.py          pod sandboxes of the process runtime
container_process.py  one container as a process
container_spec.py     a container combined from its spec, CDI files and hooks
exec_spec.py          what is recorded of a container, and the specification of its shim
adoption.py           adoption of what an earlier agent has left
shim.py               parent process of a container; a standalone program
confinement.py        setup of a container's process before exec, a module of the shim, as the next three are
console.py            input, terminal and attached clients of a container
container_log.py      log files of a container
container_mounts.py   volumes and devices in a private mount namespace
shims.py              starting, finding and signaling shims
commands.py           the command of a container
state_dir.py          pods and containers on disk
resource_updates.py    changes of the resources of running containers
cgroup_repair.py      creation of missing cgroups
simulated.py          containers without processes, for simulated nodes
cri/                  containers of containerd or CRI-O
"""

from plimsoll.node.runtime.exec_spec import ProcessSettings
from plimsoll.node.runtime.process import ProcessRuntime
from plimsoll.node.runtime.simulated import SimulatedRuntime

__all__ = ["ProcessRuntime", "ProcessSettings", "SimulatedRuntime"]
