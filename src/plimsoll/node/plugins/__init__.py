"""The drivers of a node, by the kubelet's plugin protocols.

Start at `plugins.py`. `sockets` sees what is in the registration folder, `registration` talks to a plugin,
`offers` judges what it says of itself, `registry` keeps who is registered, `links` and `calls` speak to a
driver, `answers` judges what it answers, `health` keeps what it says of its devices.
"""

from plimsoll.node.plugins.health import Health
from plimsoll.node.plugins.metrics import DraMetrics
from plimsoll.node.plugins.plugins import DriverInfo, Plugins
from plimsoll.node.plugins.registration import Times

__all__ = ["DraMetrics", "DriverInfo", "Health", "Plugins", "Times"]
