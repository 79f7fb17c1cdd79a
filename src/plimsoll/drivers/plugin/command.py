"""Command-line entry point for drivers: flags, connection to the API server, signals, logging.

`run_driver` covers the common case; programs with other needs create a `PluginServer` themselves.
"""

from __future__ import annotations

import asyncio
import logging
import os
import platform
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from plimsoll.client import Client
from plimsoll.client.kubeconfig import find_config
from plimsoll.common.structured_log import set_up_logging
from plimsoll.common.tasks import stop_on_signals
from plimsoll.drivers.plugin.driver import Driver
from plimsoll.drivers.plugin.plugin_server import CDI_DIR, KUBELET_ROOT, PluginServer
from plimsoll.errors import InputError

if TYPE_CHECKING:
    import argparse


def run_driver(make: Callable[[str], Driver], arguments: Sequence[str] | None = None) -> int:
    """Run a driver until SIGTERM or SIGINT and return the exit code.

    `make` creates the driver for a node name; `arguments` default to the command line.
    """
    options = _parser().parse_args(arguments)
    set_up_logging(verbose=options.verbose)
    try:
        asyncio.run(_run(make(options.node), options))
    except InputError as error:
        logging.getLogger("plimsoll.driver").error("%s", error)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    import argparse  # noqa: PLC0415 - drivers with a command of their own do not need it

    parser = argparse.ArgumentParser(description="Run a DRA driver.")
    name = os.environ.get("NODE_NAME") or platform.node()
    parser.add_argument("--node", default=name, help="node name (default: $NODE_NAME or the host name)")
    parser.add_argument(
        "--kubeconfig",
        type=Path,
        help="kubeconfig file (default: as kubectl, or the in-cluster configuration)",
    )
    parser.add_argument(
        "--root", type=Path, default=KUBELET_ROOT, help="root directory of the kubelet or node agent"
    )
    parser.add_argument("--cdi", type=Path, default=CDI_DIR, help="directory for CDI files")
    parser.add_argument(
        "--instance",
        default="",
        help="unique instance name for rolling updates, such as the UID of the driver's pod",
    )
    parser.add_argument("--withdraw", action="store_true", help="delete the ResourceSlices on exit")
    parser.add_argument("--verbose", action="store_true", help="enable debug logging")
    return parser


async def _run(driver: Driver, options: argparse.Namespace) -> None:
    async with Client.connect(find_config(options.kubeconfig)) as client:
        server = PluginServer(
            driver,
            client,
            options.node,
            root=options.root,
            cdi=options.cdi,
            instance=options.instance,
        )
        ended = asyncio.Event()
        stop_on_signals(ended.set)
        await server.start()
        try:
            await ended.wait()
        finally:
            await server.stop(withdraw=options.withdraw)
