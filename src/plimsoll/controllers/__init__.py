"""What keeps a cluster in order: claims made and given back, garbage collected, namespaces emptied.

Start at `controllers.py`. Each concern is a plan (`plans/`), which decides from objects alone, and a thin
loop of the same name here, which watches, asks and carries out.
"""

from plimsoll.common.clock import Clock, SystemClock
from plimsoll.controllers.common import Settings
from plimsoll.controllers.controllers import NAMES, Controllers

__all__ = ["NAMES", "Clock", "Controllers", "Settings", "SystemClock"]
