"""Plugin manager: the DRA drivers of a node, by the kubelet's plugin protocols.

Start at `plugin_manager.py`. `sockets` watches the registration directory, `registration` registers a plugin,
`plugin_info` validates what it reports, `registry` holds the registered plugins, `connection` and `calls`
communicate with a driver, `responses` validates its responses, `health` holds the health of its devices.
"""

from plimsoll.node.plugins.health import HealthStatus
from plimsoll.node.plugins.metrics import DraMetrics
from plimsoll.node.plugins.plugin_manager import PluginManager
from plimsoll.node.plugins.registration import PluginTiming

__all__ = ["DraMetrics", "HealthStatus", "PluginManager", "PluginTiming"]
