"""Controllers of kube-controller-manager that a cluster with dynamic resource allocation needs.

START HERE: `manager.py`. Each controller is one module, or one package, named after its counterpart upstream:
pure `plan_*` functions decide from objects alone which actions to take, and a controller class watches,
queues keys and executes the plans.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from plimsoll.common.clock import Clock, SystemClock
    from plimsoll.controllers.context import ControllerSettings
    from plimsoll.controllers.manager import NAMES, ControllerManager, choose_controllers

__all__ = ["NAMES", "Clock", "ControllerManager", "ControllerSettings", "SystemClock", "choose_controllers"]

#: Where each name lives. The API server uses modules of this package also if it runs no controllers: then
#: the controllers are not imported.
_HOMES = {
    "Clock": "plimsoll.common.clock",
    "SystemClock": "plimsoll.common.clock",
    "ControllerSettings": "plimsoll.controllers.context",
    "NAMES": "plimsoll.controllers.manager",
    "ControllerManager": "plimsoll.controllers.manager",
    "choose_controllers": "plimsoll.controllers.manager",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'plimsoll.controllers' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value
