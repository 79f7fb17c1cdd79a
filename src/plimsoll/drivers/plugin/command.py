"""A driver as a program of its own.

Owns `run_driver`: flags, the way to the API server, signals and the log. Whoever needs more of it than this
makes a `PluginServer` and runs it as they like.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import platform
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from plimsoll.client import Client
from plimsoll.client.kubeconfig import find_config
from plimsoll.drivers.plugin.driver import Driver
from plimsoll.drivers.plugin.plugin_server import CDI_FOLDER, KUBELET_ROOT, PluginServer
from plimsoll.errors import InputError


def run_driver(make: Callable[[str], Driver], arguments: Sequence[str] | None = None) -> int:
    """Run a driver until SIGTERM or SIGINT; the exit code. Flags are those of the command line, or these.

    `make` gives the driver for a node of this name.
    """
    options = _parser().parse_args(arguments)
    logging.basicConfig(
        level=logging.DEBUG if options.verbose else logging.INFO,
        format="%(asctime)s %(levelname)-7s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    try:
        asyncio.run(_run(make(options.node), options))
    except InputError as error:
        logging.getLogger("plimsoll.driver").error("%s", error)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="A DRA driver.")
    name = os.environ.get("NODE_NAME") or platform.node()
    parser.add_argument("--node", default=name, help="name of the node (default: $NODE_NAME or the host's)")
    parser.add_argument("--kubeconfig", type=Path, help="default: as kubectl does, or in the cluster")
    parser.add_argument("--root", type=Path, default=KUBELET_ROOT, help="root folder of the kubelet or agent")
    parser.add_argument("--cdi", type=Path, default=CDI_FOLDER, help="folder for CDI files")
    parser.add_argument("--instance", default="", help="for rolling updates: the UID of the driver's pod")
    parser.add_argument("--withdraw", action="store_true", help="delete the ResourceSlices at the end")
    parser.add_argument("--verbose", action="store_true", help="log more")
    return parser


async def _run(driver: Driver, options: argparse.Namespace) -> None:
    async with Client.connect(find_config(options.kubeconfig)) as client:
        station = PluginServer(
            driver,
            client,
            options.node,
            root=options.root,
            cdi=options.cdi,
            instance=options.instance,
        )
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, ended.set)
        await station.start()
        try:
            await ended.wait()
        finally:
            await station.stop(withdraw=options.withdraw)
