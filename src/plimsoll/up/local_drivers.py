"""Drivers of a cluster inside a Python process.

Implements `LocalCluster(drivers=...)`: device files, by path, name or text, and drivers written with
`plimsoll.drivers.plugin`. Each driver has its own user with the permissions of a driver, and a plugin server
on every node with sockets; on other nodes only the devices of files are published.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from plimsoll.apiserver.auth.users import driver_user
from plimsoll.apiserver.process import RunningServer
from plimsoll.common.config_file import parse_document
from plimsoll.drivers.fake.device_file import find_drivers, parse_drivers
from plimsoll.drivers.fake.fault_injection import parse_control
from plimsoll.drivers.fake.plan import DriverPlan
from plimsoll.drivers.fake.process import FakeDriverProcess
from plimsoll.drivers.plugin import Driver
from plimsoll.drivers.plugin.plugin_server_group import NodePaths, PluginServerGroup, check_unique_names
from plimsoll.errors import InputError
from plimsoll.tools.device_file_check import require_valid_plan

#: A device file (path, name of an included file, text or tree), a driver for the only node, or a function
#: that creates a driver for a node name.
OneDriver: TypeAlias = "str | Path | Mapping[str, Any] | Driver | Callable[[str], Driver]"
Drivers: TypeAlias = "OneDriver | Sequence[OneDriver]"
_READY_SECONDS = 30.0


class LocalDrivers:
    """Drivers of one cluster."""

    def __init__(self, wanted: Drivers) -> None:
        """Create the drivers; raises ConfigError or InputError if they are invalid."""
        if isinstance(wanted, str | Path | Mapping | Driver) or callable(wanted):
            wanted = [wanted]
        plans: list[DriverPlan] = []
        self._own: list[Driver | Callable[[str], Driver]] = []
        for each in wanted:
            if isinstance(each, Mapping):
                plans.extend(parse_drivers(each))
            elif isinstance(each, str | Path):
                plans.extend(find_drivers(each))
            elif isinstance(each, Driver) or callable(each):
                self._own.append(each)
            else:
                raise InputError(
                    f"drivers: {each!r} is not a driver: use a device file, a "
                    "plimsoll.drivers.plugin.Driver, or a function that creates one for a node"
                )
        self._plans = tuple(plans)
        self._fake: FakeDriverProcess | None = None
        self._plugin_servers = PluginServerGroup()

    async def start(self, server: RunningServer, places: Sequence[NodePaths]) -> None:
        """Start all drivers on all nodes; they are registered and published when this returns."""
        own = self._make(places)
        check_unique_names([plan.name for plan in self._plans] + list(dict.fromkeys(d.name for d, _ in own)))
        for driver, place in own:
            self._plugin_servers.add(driver, server.client(driver_user(driver.name)), place)
        self._fake = FakeDriverProcess(
            server.client(),
            self._plans,
            places,
            client_for=lambda name: server.client(driver_user(name)),
            validate=require_valid_plan,
        )
        await self._fake.start()
        await self._plugin_servers.start()
        await self._fake.wait_ready()
        await self._plugin_servers.wait_ready(_READY_SECONDS + len(places))

    async def stop(self) -> None:
        await self._plugin_servers.stop()
        if self._fake is not None:
            await self._fake.end()
        self._fake, self._plugin_servers = None, PluginServerGroup()

    def driver(self, name: str = "", node: str = "") -> Driver:
        """Return a driver on a node; either can be omitted if there is only one."""
        found: list[Driver] = [
            server_.driver
            for server_ in self._plugin_servers.all
            if name in ("", server_.driver.name) and node in ("", server_.node)
        ]
        if self._fake is not None:
            found += [
                driver
                for (own, place), driver in self._fake.drivers.items()
                if name in ("", own) and node in ("", place)
            ]
        if len(found) != 1:
            raise InputError(
                f"driver {name!r} on node {node!r}: {len(found)} instances are running; specify one"
            )
        return found[0]

    def apply_control(self, orders: str | Mapping[str, Any]) -> None:
        """Apply the content of a control file to the drivers with simulated devices."""
        assert self._fake is not None, "the cluster is not running"
        if isinstance(orders, str):
            orders = parse_document(orders, "control file", "control")
        self._fake.apply_control(parse_control(orders))

    def _make(self, places: Sequence[NodePaths]) -> list[tuple[Driver, NodePaths]]:
        with_sockets = [place for place in places if place.root is not None]
        found: list[tuple[Driver, NodePaths]] = []
        for each in self._own:
            if not with_sockets:
                raise InputError("drivers: nodes without sockets can only have devices from a file")
            if not isinstance(each, Driver):
                found += [(each(place.node), place) for place in with_sockets]
            elif len(with_sockets) == 1:
                found.append((each, with_sockets[0]))
            else:
                raise InputError(
                    f"drivers: {each.name} is one driver for {len(with_sockets)} nodes: "
                    "use a function that creates one for each node"
                )
        return found
