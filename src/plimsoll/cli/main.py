"""Entry point of the `plimsoll` command.

Exit codes: 0 success, 1 a negative result, 2 bad usage or an error, 130 interrupted by Ctrl-C, 141 the reader
of the output closed the pipe. An error is one line on standard error; `-v` or PLIMSOLL_DEBUG=1 shows the
traceback. The commands are in `commands.py`.
"""

from __future__ import annotations

import io
import logging
import os
import sys
from pathlib import Path
from typing import NoReturn

import click

from plimsoll.cli.commands import UNREAD, Commands, forget_output
from plimsoll.errors import PlimsollError, first_error
from plimsoll.tools.colors import printable

_DEBUG = "PLIMSOLL_DEBUG"
_STOPPED = 130
#: Modules of the extra `server`.
SERVER_MODULES = {"cryptography", "google", "grpc", "h2", "jwt"}
#: Longest error message; longer ones are shortened in the middle, because the fix is at the end.
_LONGEST = 500


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="plimsoll", prog_name="plimsoll")
@click.option("-v", "--verbose", is_flag=True, help="Show a traceback for errors.")
@click.option("--no-pager", is_flag=True, help="Write long reports to the terminal without a pager.")
def plimsoll(verbose: bool, no_pager: bool) -> None:
    """One ledger for a Kubernetes node: pod requests and DRA claims on the same line.

    \b
    plimsoll up --demo
    plimsoll top
    plimsoll explain my-pod -n team-a
    plimsoll dump --out cluster.json.gz; plimsoll audit -f cluster.json.gz
    """
    del no_pager  # read by `pager.py`
    if verbose:
        os.environ[_DEBUG] = "1"


def main(argv: list[str] | None = None, prog_name: str = "plimsoll") -> NoReturn:
    """Run the command line; returns only through SystemExit."""
    # Log records are not written to the terminal unless a command configures logging.
    logging.getLogger("plimsoll").addHandler(logging.NullHandler())
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a name that the terminal cannot display is not an error
    try:
        code = plimsoll.main(args=argv, prog_name=prog_name, standalone_mode=False)
        sys.stdout.flush()
    except click.ClickException as error:
        _print_error(_usage(error, prog_name))
        sys.exit(2)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(_STOPPED)
    except BrokenPipeError:
        forget_output()
        sys.exit(UNREAD)
    except BaseExceptionGroup as group:
        _fail(first_error(group), prog_name)
    except Exception as error:
        _fail(error, prog_name)
    sys.exit(code if isinstance(code, int) else 0)


def run_as_plugin(argv: list[str] | None = None) -> NoReturn:
    """Run the commands as `kubectl plimsoll`."""
    main(argv, "kubectl plimsoll")


def _usage(error: click.ClickException, prog_name: str) -> str:
    """Return one line for invalid arguments, or the help if there are none."""
    ctx = error.ctx if isinstance(error, click.UsageError) else None
    if ctx is not None and type(error).__name__ == "NoArgsIsHelpError":  # click 8.2 and later have it
        return ctx.get_help()
    path = ctx.command_path if ctx is not None else prog_name
    message = " ".join(error.format_message().split()).rstrip(".")
    known = message.endswith("?") or "--help" in message
    return f"{path}: {message[:1].lower()}{message[1:]}" + ("" if known else f"; see {path} --help")


def _fail(error: BaseException, prog_name: str) -> NoReturn:
    if isinstance(error, (KeyboardInterrupt, click.Abort)):
        sys.exit(_STOPPED)
    if os.environ.get(_DEBUG):
        import traceback  # noqa: PLC0415 - rarely needed

        click.echo("".join(traceback.format_exception(error)), err=True, nl=False)
    text = str(error) if isinstance(error, PlimsollError) else _format_unexpected(error)
    _print_error(_one_line(f"{prog_name}: {text}"))
    sys.exit(2)


def _print_error(text: str) -> None:
    """Print an error without control characters, which may come from files and servers."""
    click.echo("\n".join(map(printable, text.split("\n"))), err=True)


def _one_line(text: str) -> str:
    line = " ".join(text.splitlines())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST * 2 // 3]} ... {line[-_LONGEST // 3 :]}"


def _format_unexpected(error: BaseException) -> str:
    """Format an unexpected exception as one line."""
    if isinstance(error, MemoryError):
        return "not enough memory"
    if isinstance(error, ModuleNotFoundError) and str(error.name).partition(".")[0] in SERVER_MODULES:
        return (
            f"{error.name} is not installed: servers, node agents and drivers need more packages; "
            "run pip install 'plimsoll[server]'"
        )
    if isinstance(error, OSError) and error.strerror:
        name = f"{error.filename}: " if error.filename else ""
        return f"{name}{error.strerror}"
    trace, place = error.__traceback__, ""
    while trace is not None:
        frame = trace.tb_frame
        place = f"{Path(frame.f_code.co_filename).name}:{trace.tb_lineno}"
        trace = trace.tb_next
    message = " ".join(str(error).split())[:200]
    return (
        f"internal error: {type(error).__name__}{': ' if message else ''}{message} ({place}); "
        f"please report it with the output of {_DEBUG}=1"
    )


if __name__ == "__main__":
    main()
