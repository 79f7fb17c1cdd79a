"""Process of `plimsoll up`: signals, logging and the summary at exit.

`serve_up` stops everything in order on Ctrl-C, SIGTERM or SIGHUP, and immediately on the second signal. Logs
are written to a file in the data directory, and to the terminal only with `--verbose`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from contextlib import suppress
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path

from plimsoll.common.structured_log import set_up_logging
from plimsoll.errors import ConfigError, PlimsollError
from plimsoll.up.console import Console
from plimsoll.up.settings import UpSettings
from plimsoll.up.up import Up

_LOG_BYTES = 10 * 1024 * 1024
_LOG_FILES = 2
_FORCED = 130


async def serve_up(settings: UpSettings, console: Console) -> bool:
    """Run until a signal requests the end; return whether everything succeeded."""
    up = Up(settings, console)
    signals = _Signals(up, console)
    up.on_locked = lambda: _log_to(up.settings)
    fine = True

    async def ready(cluster: Up) -> None:
        nonlocal fine
        fine = not cluster.problems
        if settings.demo:
            from plimsoll.up.demo import play_demo  # noqa: PLC0415 - rarely needed

            fine = await play_demo(cluster, console) and fine
        if settings.once:
            cluster.stop()
            return
        for line in cluster.lines():
            console.line(line)

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, signals.on_signal)
    try:
        with suppress(asyncio.CancelledError):
            await up.run(ready)
    except PlimsollError as error:
        console.end()
        if up.server is None:
            raise  # nothing was started that could have been logged
        raise ConfigError(f"{error} (log: {_short(up.settings.log)})") from None
    except BrokenPipeError:
        raise  # the reader has closed the pipe
    except OSError as error:
        where = error.filename or up.settings.data
        raise ConfigError(f"{where}: {error.strerror or error}") from None
    finally:
        console.end()
    console.line("stopped")
    return fine


class _Signals:
    """Signal handlers: the first signal stops in order, the second immediately."""

    def __init__(self, up: Up, console: Console) -> None:
        self._up = up
        self._console = console
        self._signaled = False

    def on_signal(self) -> None:
        if self._signaled:
            sys.stdout.flush()
            os._exit(_FORCED)  # all writes are on disk; running containers are adopted at the next start
        self._signaled = True
        with suppress(OSError):  # the terminal may be gone
            self._console.end()
            self._console.line("stopping; press Ctrl-C again to stop immediately")
        self._up.stop()


class UpLogFile(RotatingFileHandler):
    """Log file that ignores write errors, so that a full disk does not flood the terminal."""

    def handleError(self, record: logging.LogRecord) -> None:
        pass

    def _open(self) -> TextIOWrapper:
        """Open the file for its owner only: messages name pods and users."""
        file = Path(self.baseFilename).open("a", encoding=self.encoding)  # noqa: SIM115 - the handler closes it
        os.fchmod(file.fileno(), 0o600)
        return file


def _log_to(settings: UpSettings) -> None:
    try:
        file = UpLogFile(settings.log, maxBytes=_LOG_BYTES, backupCount=_LOG_FILES)
    except OSError as error:
        raise ConfigError(f"{settings.log}: not writable: {error.strerror or error}") from None
    terminal = [logging.StreamHandler(sys.stderr)] if settings.verbose else []
    set_up_logging(settings.log_format, verbose=settings.verbose, handlers=[file, *terminal])


def _short(path: Path) -> str:
    """Return a path relative to the current directory, if it is below it."""
    with suppress(ValueError, OSError):
        return str(path.relative_to(Path.cwd()))
    return str(path)
