"""Device plugins (API v1beta1): the devices of extended resources, and their allocation to containers.

devices.py     devices and allocations as values, and the choice of devices
checkpoint.py  allocations and known devices on disk
connection.py  connection to one plugin: its devices, and calls
manager.py     `DeviceManager`: registration, node resources, allocation, release
"""

from plimsoll.node.device_plugins.manager import DeviceManager

__all__ = ["DeviceManager"]
