"""Options that several commands share, and the output of results.

`cluster_options` (`-f`, `--kubeconfig`, `--context`, `-n`, as in kubectl), `ledger_options`, `output_options`
(`-o table|wide|json|yaml`, `--color`) and `write_report`. Colors and progress (on standard error) are for
terminals only. In all modules of `cli`, dependencies are imported when a command runs, so that other commands
start quickly.
"""

# ruff: noqa: PLC0415

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial, reduce, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

import click

from plimsoll.cli.name_completion import complete_contexts, complete_names
from plimsoll.cli.pager import show
from plimsoll.cli.where import Progress, Where

__all__ = [
    "DIRECTORY",
    "FILE",
    "SCHEDULERS",
    "DurationParam",
    "Output",
    "OutputFormat",
    "Progress",
    "RenamedOption",
    "Where",
    "cluster_options",
    "connection_options",
    "data_dir_option",
    "feature_gates_option",
    "is_colored",
    "ledger_options",
    "output_options",
    "output_options_and",
    "scheduler_config_option",
    "write_report",
]

if TYPE_CHECKING:
    from plimsoll.tools.colors import Paint
    from plimsoll.tools.report import Report

    _Choice = click.Choice[str]
    _Seconds = click.ParamType[float]
else:
    _Choice = click.Choice  # which takes no type before click 8.2
    _Seconds = click.ParamType

F = TypeVar("F", bound=Callable[..., Any])
#: Schedulers whose rules can be applied with `--as`.
SCHEDULERS = ("plimsoll", "kube", "kube-1.36", "kube-1.36-default", "kube-1.37")
FILE = click.Path(dir_okay=False, path_type=Path)
DIRECTORY = click.Path(file_okay=False, path_type=Path)


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


def process_options(lease: str, listen: str) -> Callable[[F], F]:
    """Add the options that all processes of the scheduler have, named as its settings; None if not given."""
    options: list[Callable[[F], F]] = [
        click.option(
            "--leader-elect/--no-leader-elect",
            default=None,
            help="Elect a leader among replicas. [default: no]",
        ),
        click.option(
            "--lease",
            metavar="[NAMESPACE/]NAME",
            help=f"Leader election Lease. [default: kube-system/{lease}]",
        ),
        click.option(
            "--listen",
            metavar="HOST:PORT",
            help=f"Address for health and metrics; '' disables it. [default: {listen}]",
        ),
        click.option(
            "--cert-dir",
            type=DIRECTORY,
            metavar="DIR",
            help="Serve HTTPS with tls.crt and tls.key of DIR, self-signed if missing; metrics need a token.",
        ),
        click.option("--log-format", type=click.Choice(["text", "json"]), help="Log format. [default: text]"),
        click.option("-v", "--verbose", is_flag=True, default=None, help="Enable debug logging."),
    ]
    return lambda command: reduce(lambda done, option: option(done), reversed(options), command)


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
        return Paint(is_colored(self.color), width, sys.stdout.isatty())


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
