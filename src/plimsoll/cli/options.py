"""Options that several commands share, and the output of results.

`cluster_options` (`-f`, `--kubeconfig`, `--context`, `-n`, as in kubectl), `ledger_options`, `output_options`
(`-o table|wide|json|yaml`, `--color`) and `write_report`. Colors and progress (on standard error) are for
terminals only. In all modules of `cli`, dependencies are imported when a command runs, so that other commands
start quickly.
"""

# ruff: noqa: PLC0415

from __future__ import annotations

import gc
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

import click

from plimsoll.cli.name_completion import complete_contexts, complete_names
from plimsoll.cli.pager import show

if TYPE_CHECKING:
    from plimsoll.tools.cluster_state import ClusterState, Gap, Source
    from plimsoll.tools.cluster_state.manifests import ParsedObject
    from plimsoll.tools.colors import Paint
    from plimsoll.tools.report import Report

    _Choice = click.Choice[str]
    _Seconds = click.ParamType[float]
else:
    _Choice = click.Choice  # which takes no type before click 8.2
    _Seconds = click.ParamType

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
FILE = click.Path(dir_okay=False, path_type=Path)
DIRECTORY = click.Path(file_okay=False, path_type=Path)
#: Kubeconfig that `plimsoll up` writes, used if there is no other one.
OWN_KUBECONFIG = Path("plimsoll-data/kubeconfig")


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
        _settle_memory()
        _warn_missing(cluster_state.objects.gaps)
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
        _warn_missing(trees.gaps)
        return trees.found


def _warn_missing(gaps: Iterable[Gap]) -> None:
    from plimsoll.tools.cluster_state.missing_kinds import summarize_gaps
    from plimsoll.tools.colors import printable

    for line in summarize_gaps(gaps):
        click.echo(f"note: {printable(line)}", err=True)


def _settle_memory() -> None:
    """Exempt the objects read so far from garbage collection; they live until the process exits."""
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)


def _has_default_kubeconfig() -> bool:
    """Return whether kubectl's default rules find a cluster."""
    if os.environ.get("KUBECONFIG") or "KUBERNETES_SERVICE_HOST" in os.environ:
        return True
    home = os.environ.get("HOME")
    return home is not None and (Path(home) / ".kube" / "config").exists()


class RenamedOption(click.Option):
    """Option whose former names still work but are not shown in the help text."""

    def __init__(self, *args: Any, former: tuple[str, ...] = (), **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.former = former

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        names = self.opts
        self.opts = [name for name in names if name not in self.former]
        try:
            return super().get_help_record(ctx)
        finally:
            self.opts = names


def scheduler_config_option(command: F) -> F:
    """Add `--scheduler-config`; the command receives `profiles`, a ProfileSet or None."""

    @click.option(
        "--scheduler-config",
        type=FILE,
        metavar="FILE",
        help="Configuration file of the cluster's scheduler, our own or a KubeSchedulerConfiguration.",
    )
    @wraps(command)
    def read(*args: Any, scheduler_config: Path | None, **given: Any) -> Any:
        profiles = None
        if scheduler_config is not None:
            from plimsoll.scheduler.process.configuration import read_settings

            def warn(text: str) -> None:
                click.echo(f"warning: {text}", err=True)

            profiles = read_settings(scheduler_config, None, warn).profile_set
        return command(*args, profiles=profiles, **given)

    return cast(F, read)


def data_dir_option(help: str, **settings: Any) -> Callable[[F], F]:
    """Add `--data-dir` (formerly `--data`) to a command, as `data`."""
    names = ("--data-dir", "--data", "data")
    former = ("--data",)
    return click.option(
        *names, cls=RenamedOption, former=former, type=DIRECTORY, metavar="DIR", help=help, **settings
    )


def feature_gates_option(default: str | None = "") -> Callable[[F], F]:
    """Add `--feature-gates` to a command, as `gates`."""
    text = "Enable or disable feature gates (`plimsoll gates` lists them)."
    return click.option("--feature-gates", "gates", default=default, metavar="NAME=BOOL,...", help=text)


def connection_options(command: F) -> F:
    """Add the options of a component's API server to a command: `--kubeconfig` and `--context`."""
    text = "Kubeconfig file. [default: KUBECONFIG, then in-cluster]"
    context = _context_option()
    return click.option("--kubeconfig", type=FILE, metavar="FILE", help=text)(context(command))


def _context_option() -> Callable[[F], F]:
    text = "Kubeconfig context to use."
    return click.option("--context", default="", metavar="NAME", shell_complete=complete_contexts, help=text)


def cluster_options(command: F) -> F:
    """Add the options of a cluster or files to a command, as `where`."""

    @click.option(
        "-f",
        "--filename",
        "files",
        multiple=True,
        metavar="FILE",
        help="Read the cluster from a file, directory or archive of YAML or JSON (- for stdin). Repeatable.",
    )
    @click.option(
        "--kubeconfig",
        type=FILE,
        metavar="FILE",
        help="Path to the kubeconfig file. [default: as kubectl]",
    )
    @_context_option()
    @click.option(
        "-n",
        "--namespace",
        default="",
        metavar="NAME",
        shell_complete=complete_names("namespaces"),
        help="Limit the output to one namespace.",
    )
    @click.option("-A", "--all-namespaces", is_flag=True, help="Show all namespaces (the default).")
    @click.option(
        "--request-timeout",
        type=DurationParam(),
        metavar="DURATION",
        help="Maximum time to wait for data from the server, for example 30s; 0 disables it. [default: 10s]",
    )
    @wraps(command)
    def with_where(
        *given: Any,
        files: tuple[str, ...],
        kubeconfig: Path | None,
        context: str,
        namespace: str,
        all_namespaces: bool,
        request_timeout: float | None,
        **rest: Any,
    ) -> Any:
        if all_namespaces and namespace:
            raise click.UsageError("-A and -n cannot be combined")
        where = Where(files, kubeconfig, context, namespace, request_timeout)
        with _add_hint():
            return command(*given, where=where, **rest)

    return with_where  # type: ignore[return-value]


def ledger_options(command: F) -> F:
    """Add `cluster_options`, and the options of a command that computes ledgers, as `where`."""

    @feature_gates_option()
    @click.option(
        "--assume-mapping",
        is_flag=True,
        help="Count claims for CPUs, memory and huge pages of nodes whose driver publishes no mapping.",
    )
    @cluster_options
    @wraps(command)
    def with_ledgers(*given: Any, gates: str, assume_mapping: bool, where: Where, **rest: Any) -> Any:
        return command(*given, where=replace(where, gates=gates, assume_mapping=assume_mapping), **rest)

    return with_ledgers  # type: ignore[return-value]


class DurationParam(_Seconds):
    """Duration in kubectl's syntax: `30s`, `1m30s`, `500ms`, or a number of seconds."""

    name = "duration"
    _SHAPE = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,6})?)(ms|s|m|h|)")
    _UNITS: ClassVar[dict[str, float]] = {"ms": 0.001, "s": 1.0, "": 1.0, "m": 60.0, "h": 3600.0}

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        parts = self._SHAPE.findall(value)
        whole = "".join(number + unit for number, unit in parts) == value
        if not parts or not whole or (len(parts) > 1 and any(not unit for _, unit in parts)):
            self.fail(f"{value!r} is not a duration: use 30s, 2m or 500ms", param, ctx)
        return sum(float(number) * self._UNITS[unit] for number, unit in parts)


@contextmanager
def _add_hint() -> Iterator[None]:
    """Add the fix to the error of a server that does not respond."""
    from plimsoll.errors import UnreachableError

    try:
        yield
    except UnreachableError as error:
        if error.reason != "Timeout":
            raise
        advice = "check the server's address, or wait longer with --request-timeout 60s"
        raise UnreachableError(f"{error.message}; {advice}", sent=error.sent, reason=error.reason) from None


@dataclass(frozen=True, slots=True)
class OutputFormat:
    """Output format and color of a result."""

    output: str = "table"
    color: str = "auto"

    @property
    def paint(self) -> Paint:
        from plimsoll.tools.colors import Paint

        width = shutil.get_terminal_size((100, 40)).columns
        return Paint(is_colored(self.color), width)


def is_colored(choice: str) -> bool:
    """Return whether standard output supports colors."""
    if choice != "auto":
        return choice == "always"
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


class Output(_Choice):
    """Output format; `text` is an alias of `table`."""

    def __init__(self, *more: str) -> None:
        super().__init__(["table", "wide", "json", "yaml", *more])

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return super().convert("table" if value == "text" else value, param, ctx)


def output_options(command: F, more: tuple[str, ...] = ()) -> F:
    """Add the output options to a command, as `form`."""

    @click.option(
        "-o",
        "--output",
        type=Output(*more),
        default="table",
        show_default=True,
        help="Output format.",
    )
    @click.option(
        "--color",
        "color",
        type=click.Choice(["auto", "always", "never"]),
        default="auto",
        help="Use colors. [default: on a terminal]",
    )
    @wraps(command)
    def with_form(*given: Any, output: str, color: str, **rest: Any) -> Any:
        return command(*given, form=OutputFormat(output, color), **rest)

    return with_form  # type: ignore[return-value]


def output_options_and(*more: str) -> Callable[[F], F]:
    """Add `output_options` with additional outputs of the command."""
    return partial(output_options, more=more)


def write_report(report: Report, form: OutputFormat) -> None:
    """Write a report to standard output."""
    if form.output == "json":
        text = json.dumps(report.as_json(), indent=2)
    elif form.output == "yaml":
        from plimsoll.common.yaml import dump_document

        text = dump_document(report.as_json()).decode().removesuffix("\n")
    else:
        paint = form.paint
        text = "\n".join(map(paint.sanitize, report.lines(paint, wide=form.output == "wide")))
    if text and form.output in ("table", "wide"):
        show(text)
    elif text:
        click.echo(text, color=True)  # Paint has decided about colors


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
