"""Console of a container: its input, its terminal and the clients that are attached to it.

The third module of the shim (see shim.py); imports nothing else of this package. Clients connect to the
socket `attach.sock` in the container's directory, which only the owner of the shim can open, and exchange
frames: one byte with the kind, four with the length, the data.

   to the shim    DATA input, END no more input, RESIZE width and height, INPUT the client provides input
   to the client  STDOUT, STDERR output from now on

Guarantees that no client delays the container: one that does not read 1 MiB of output is disconnected, and
input is read only as fast as the container reads it. The input of a container ends with its first client, if
it is to be attached once.
"""

from __future__ import annotations

import _socket
import contextlib
import fcntl
import os
import select
import struct
import termios

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing takes longer to import than all the rest
    from typing import Any

SOCKET = "attach.sock"
DATA, STDOUT, STDERR, END, RESIZE, INPUT = 0, 1, 2, 3, 4, 5
HEAD = struct.Struct(">BI")
SIZE = struct.Struct(">HH")
MAX_CLIENTS = 16
#: Bytes of output that a client has not read, and of input that the container has not.
MAX_OUTPUT, MAX_INPUT = 1 << 20, 64 << 10
#: Largest frame of a client.
MAX_FRAME = 64 << 10
_STREAMS = {b"stdout": STDOUT, b"stderr": STDERR}


class AttachedClient:
    """Connection of a client."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.fd: int = connection.fileno()
        self.received = b""
        self.unsent = bytearray()
        self.gives_input = False


class ContainerConsole:
    """Console of one container, driven by the poll loop of its shim."""

    def __init__(self, spec: dict[str, Any], directory: int) -> None:
        self.tty, self.once = bool(spec.get("tty")), bool(spec.get("stdin_once"))
        self.has_input = bool(spec.get("stdin"))
        self.input = -1  #: descriptor that the container's input is written to
        self._terminal = -1
        self._pending = bytearray()
        self._ending = False
        self._clients: dict[int, AttachedClient] = {}
        self._poll: Any = None
        self._listener: Any = None
        self._directory = directory

    # -- descriptors of the first process

    def open(self) -> tuple[tuple[int, int, int], dict[int, bytes]]:
        """Return the first process's input, output and error output, and what the shim reads by stream."""
        if self.tty:
            self._terminal, slave = os.openpty()
            for fd in (self._terminal, slave):
                os.set_inheritable(fd, False)
            if self.has_input:
                self.input = os.dup(self._terminal)
                os.set_blocking(self.input, False)
            return (slave, slave, slave), {self._terminal: b"stdout"}
        (out_r, out_w), (err_r, err_w) = os.pipe2(os.O_CLOEXEC), os.pipe2(os.O_CLOEXEC)
        source = -1
        if self.has_input:
            source, self.input = os.pipe2(os.O_CLOEXEC)
            os.set_blocking(self.input, False)
        else:
            source = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
        return (source, out_w, err_w), {out_r: b"stdout", err_r: b"stderr"}

    # -- the poll loop

    def listen(self) -> None:
        """Let clients connect from now on; without a socket the container runs all the same."""
        # By way of the descriptor: the path may be longer than the address of a socket can be.
        path = f"/proc/self/fd/{self._directory}/{SOCKET}"
        mask = os.umask(0o177)
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(f"{path}.new")
            listener = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM | _socket.SOCK_CLOEXEC)
            listener.setblocking(False)
            listener.bind(f"{path}.new")
            listener.listen(MAX_CLIENTS)
            # A client that finds the socket can connect to it.
            os.rename(f"{path}.new", path)
        except OSError:
            return
        finally:
            os.umask(mask)
        self._listener = listener

    def register(self, poll: Any) -> None:
        """Serve clients by way of the poll loop."""
        self._poll = poll
        if self._listener is not None:
            poll.register(self._listener.fileno(), select.POLLIN)

    def handle(self, fd: int, event: int) -> None:
        """Handle an event of one of the console's descriptors."""
        if self._listener is not None and fd == self._listener.fileno():
            self._accept()
        elif fd == self.input:
            self._write_input()
        elif fd in self._clients:
            client = self._clients[fd]
            if event & select.POLLOUT:
                self._flush(client)
            if event & (select.POLLIN | select.POLLHUP | select.POLLERR) and fd in self._clients:
                self._receive(client)

    def output(self, stream: bytes, data: bytes) -> None:
        """Send output to all clients."""
        for client in list(self._clients.values()):
            client.unsent += HEAD.pack(_STREAMS[stream], len(data)) + data
            self._flush(client)

    def close(self, seconds: float) -> None:
        """Send what is left to clients that read, for a limited time, and disconnect all."""
        for client in list(self._clients.values()):
            client.connection.settimeout(seconds)
            with contextlib.suppress(OSError):
                client.connection.sendall(client.unsent)
            self._drop(client)
        if self._listener is not None:
            self._listener.close()

    # -- clients

    def _accept(self) -> None:
        try:
            fd, _ = self._listener._accept()
        except OSError:
            return
        connection = _socket.socket(fileno=fd)
        if len(self._clients) >= MAX_CLIENTS:
            connection.close()
            return
        connection.setblocking(False)
        client = AttachedClient(connection)
        self._clients[client.fd] = client
        self._watch(client)

    def _receive(self, client: AttachedClient) -> None:
        try:
            data = client.connection.recv(32768)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._drop(client)
            return
        client.received += data
        while len(client.received) >= HEAD.size:
            kind, length = HEAD.unpack_from(client.received)
            if length > MAX_FRAME:
                self._drop(client)
                return
            if len(client.received) < HEAD.size + length:
                break
            body = client.received[HEAD.size : HEAD.size + length]
            client.received = client.received[HEAD.size + length :]
            self._on_frame(client, kind, body)
        self._watch_all()

    def _on_frame(self, client: AttachedClient, kind: int, body: bytes) -> None:
        if kind == INPUT:
            client.gives_input = True
        elif kind == DATA and self.input >= 0 and not self._ending:
            self._pending += body
            self._write_input()
        elif kind == END and self.once and client.gives_input:
            self._end_input()
        elif kind == RESIZE and self._terminal >= 0 and len(body) == SIZE.size:
            width, height = SIZE.unpack(body)
            with contextlib.suppress(OSError):
                fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    def _flush(self, client: AttachedClient) -> None:
        try:
            while client.unsent:
                del client.unsent[: client.connection.send(client.unsent)]
        except BlockingIOError:
            if len(client.unsent) > MAX_OUTPUT:
                self._drop(client)
                return
        except OSError:
            self._drop(client)
            return
        self._watch(client)

    def _drop(self, client: AttachedClient) -> None:
        if self._clients.pop(client.fd, None) is None:
            return
        with contextlib.suppress(KeyError, OSError):
            self._poll.unregister(client.fd)
        client.connection.close()
        if client.gives_input and self.once:
            self._end_input()

    def _watch_all(self) -> None:
        for client in self._clients.values():
            self._watch(client)

    def _watch(self, client: AttachedClient) -> None:
        events = 0 if len(self._pending) >= MAX_INPUT else select.POLLIN
        if client.unsent:
            events |= select.POLLOUT
        self._poll.register(client.fd, events)

    # -- input

    def _write_input(self) -> None:
        if self.input < 0:
            return
        full = len(self._pending) >= MAX_INPUT
        try:
            while self._pending:
                del self._pending[: os.write(self.input, self._pending)]
        except BlockingIOError:
            self._poll.register(self.input, select.POLLOUT)
            return
        except OSError:  # the container has closed its input
            self._pending.clear()
            self._close_input()
            return
        with contextlib.suppress(KeyError):
            self._poll.unregister(self.input)
        if full:
            self._watch_all()
        if self._ending:
            self._close_input()

    def _end_input(self) -> None:
        """Close the input once everything is written; a terminal has no end."""
        if self.input >= 0 and not self.tty:
            self._ending = True
            self._write_input()

    def _close_input(self) -> None:
        if self.input >= 0:
            with contextlib.suppress(KeyError):
                self._poll.unregister(self.input)
            os.close(self.input)
            self.input = -1
