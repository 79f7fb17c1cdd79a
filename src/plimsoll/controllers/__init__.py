"""Controllers of kube-controller-manager that a cluster with dynamic resource allocation needs.

START HERE: `manager.py`. Each controller is one module, or one package, named after its counterpart upstream:
pure `plan_*` functions decide from objects alone which actions to take, and a controller class watches,
queues keys and executes the plans.
"""

from plimsoll.common.clock import Clock, SystemClock
from plimsoll.controllers.context import ControllerSettings
from plimsoll.controllers.manager import NAMES, ControllerManager, choose_controllers

__all__ = ["NAMES", "Clock", "ControllerManager", "ControllerSettings", "SystemClock", "choose_controllers"]
