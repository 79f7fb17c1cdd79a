"""Pinning: containers with claims run on the CPUs of their claims, all others on the shared pool.

plan.py             cpuset of each container, or the reason why it has none (pure)
container_table.py  containers of a runtime and their pending changes (pure)
enforcer.py         interface of enforcers, and the choice between them
nri.py              `NriEnforcer`: pins through the runtime's NRI
nri_messages.py     conversion of NRI messages
cgroups.py          `CgroupEnforcer`: pins by writing cpusets
pods.py             containers and claims from the API
cgroup_finder.py    cgroups of pods and containers
cpusets.py          reading and writing kernel cpusets
audit.py            comparison of actual with desired cpusets
counters.py         counters
"""

from plimsoll.drivers.cpu.pinning.nri import NriEnforcer

__all__ = [
    "NriEnforcer",
]
