"""Who runs where: containers with claims on the CPUs of their claims, all others on the shared pool.

plan.py      what each container may run on, and why not (pure)
roll.py      the containers of a runtime, and what is to be changed (pure)
enforcer.py  which of the two it is
messages.py  containers and changes as NRI has them
nri.py       `NriEnforcer`: by way of the runtime
pods.py      containers and claims as the API tells of them
folders.py   where their cgroups are
cpusets.py   what the kernel wants of those who write cpusets
cgroups.py   `CgroupEnforcer`: by writing cpusets
audit.py     whether containers have what they were given
"""

from plimsoll.drivers.cpu.pinning.cgroups import CgroupEnforcer
from plimsoll.drivers.cpu.pinning.counters import Counters
from plimsoll.drivers.cpu.pinning.nri import NriEnforcer
from plimsoll.drivers.cpu.pinning.plan import ContainerView, Holdings, PinFault, Wanted, wanted
from plimsoll.drivers.cpu.pinning.pods import NodePods, PodSource

__all__ = [
    "CgroupEnforcer",
    "ContainerView",
    "Counters",
    "Holdings",
    "NodePods",
    "NriEnforcer",
    "PinFault",
    "PodSource",
    "Wanted",
    "wanted",
]
