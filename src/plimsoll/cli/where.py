"""Cluster or files that a command reads, and the progress line while it does."""

# ruff: noqa: PLC0415

from __future__ import annotations

import atexit
import gc
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from plimsoll.tools.cluster_state import ClusterState, Gap, Source
    from plimsoll.tools.cluster_state.manifests import ParsedObject

T = TypeVar("T")
#: Kubeconfig that `plimsoll up` writes, used if there is no other one.
OWN_KUBECONFIG = Path("plimsoll-data/kubeconfig")
#: Number of objects of a large cluster state.
_LARGE = 10_000


@dataclass(frozen=True, slots=True)
class Where:
    """Cluster that a command reads."""

    files: tuple[str, ...] = ()
    kubeconfig: Path | None = None
    context: str = ""
    namespace: str = ""  #: as given; "" if not given
    request_timeout: float | None = None  #: seconds; 0: no timeout, None: the default
    gates: str = ""  #: feature gates of the cluster's scheduler, as given
    assume_mapping: bool = False  #: count claims for node resources whose driver publishes no mapping

    def source(self) -> Source:
        """Return the files, or the cluster of a kubeconfig; raises if neither is found."""
        from plimsoll.client.kubeconfig import find_config
        from plimsoll.errors import ConfigError
        from plimsoll.tools.cluster_state import Source

        if self.files:
            if self.kubeconfig or self.context:
                given = "--kubeconfig" if self.kubeconfig else "--context"
                raise ConfigError(f"-f and {given} cannot be combined: use files or a cluster")
            if "-" in self.files and sys.stdin is not None and sys.stdin.isatty():
                click.echo("reading from standard input; end it with Ctrl-D", err=True)
            return Source(self.files, namespace=self.namespace)
        kubeconfig = self.kubeconfig
        if (
            kubeconfig is None
            and not self.context
            and not _has_default_kubeconfig()
            and OWN_KUBECONFIG.exists()
        ):
            kubeconfig = OWN_KUBECONFIG
        try:
            config = find_config(kubeconfig, context=self.context, namespace=self.namespace)
        except ConfigError as error:
            hint = ", or read a dump with -f" if str(error).startswith("no cluster configured") else ""
            raise ConfigError(f"{error}{hint}") from None
        return Source(config=config.interactive(self.request_timeout), namespace=self.namespace)

    def describe(self, *, namespaced: bool = True) -> str:
        """Describe the location for messages."""
        origin = self.source().origin
        return f"namespace {self.namespace} of {origin}" if namespaced and self.namespace else origin

    def cluster_state(self) -> ClusterState:
        """Read the cluster state with a progress line; warn on standard error about missing kinds."""
        from plimsoll.api.gates import Gates
        from plimsoll.tools.cluster_state import read_cluster_state

        gates = Gates.parse(self.gates)
        with Progress() as progress:
            cluster_state = read_cluster_state(
                self.source(), gates, tick=progress.tick, assume_mapping=self.assume_mapping
            )
        _settle_memory(cluster_state)
        warn_missing(cluster_state.objects.gaps)
        if cluster_state.assumed_mappings is not None:
            click.echo(f"note: --assume-mapping: {cluster_state.assumed_mappings.describe()}", err=True)
        return cluster_state

    def objects(self, *plurals: str, **options: Any) -> list[ParsedObject]:
        """Return objects with all their fields: all objects of files, or these kinds of a cluster.

        `options` are those of `ObjectQuery`.
        """
        from plimsoll.tools.cluster_state.raw_objects import ObjectQuery, read_raw_objects

        with Progress() as progress:
            trees = read_raw_objects(self.source(), ObjectQuery(plurals, **options), progress.tick)
        warn_missing(trees.gaps)
        return trees.found


def warn_missing(gaps: Iterable[Gap]) -> None:
    """Warn on standard error about kinds that could not be read."""
    from plimsoll.tools.cluster_state.missing_kinds import summarize_gaps
    from plimsoll.tools.colors import printable

    for line in summarize_gaps(gaps):
        click.echo(f"note: {printable(line)}", err=True)


def _settle_memory(cluster_state: ClusterState) -> None:
    """Exempt the objects read so far from garbage collection; they live until the process exits.

    A large cluster state is never freed, nor examined once more when the interpreter ends: that would take a
    second after the answer.
    """
    if len(cluster_state.objects) >= _LARGE:
        keep_until_exit(cluster_state)
        atexit.register(gc.freeze)
    gc.freeze()
    gc.set_threshold(2_000_000, 50, 100)


def keep_until_exit(thing: Any) -> None:
    """Keep an object alive that would take time to free when nothing refers to it any more."""
    kept: list[Any] = [thing]
    kept.append(kept)  # a cycle, which only a collection could free


def _has_default_kubeconfig() -> bool:
    """Return whether kubectl's default rules find a cluster."""
    from plimsoll.client.kubeconfig import default_files

    if os.environ.get("KUBECONFIG") or "KUBERNETES_SERVICE_HOST" in os.environ:
        return True
    return any(file.exists() for file in default_files(os.environ))


class Progress:
    """Progress line on standard error, shown only on a terminal.

    It appears after a delay, so that short work does not flicker, and is updated at a readable rate.
    """

    DELAY_SECONDS = 0.3
    INTERVAL_SECONDS = 0.1

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._on = sys.stderr is not None and sys.stderr.isatty()
        self._clock = clock
        self._next = clock() + self.DELAY_SECONDS
        self._shown = False

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._shown:
            click.echo("\r\x1b[K", nl=False, err=True, color=True)

    def over(self, what: str, things: Sequence[T]) -> Iterator[T]:
        """Yield the items while the progress line counts them."""
        for number, thing in enumerate(things):
            self.tick(what, number, len(things))
            yield thing

    def tick(self, what: str, done: int, whole: int) -> None:
        if not self._on or self._clock() < self._next:
            return
        self._next = self._clock() + self.INTERVAL_SECONDS
        self._shown = True
        much = f" {done:,}/{whole:,}" if whole else (f" {done:,}" if done else "")
        room = shutil.get_terminal_size((100, 40)).columns - 1
        click.echo(f"\r\x1b[K{f'{what}{much}'[:room]}", nl=False, err=True, color=True)
