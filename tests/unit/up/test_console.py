"""Console output while a cluster starts."""

from __future__ import annotations

from io import BytesIO, StringIO, TextIOWrapper

from plimsoll.tools.colors import Paint
from plimsoll.up.console import Console


def test_in_a_pipe_only_results_are_printed() -> None:
    output = StringIO()
    console = Console(output)
    console.begin("API server")
    console.done("API server", "https://127.0.0.1:6443")
    console.begin("node")
    console.line("a line")
    console.end()
    assert output.getvalue() == "  API server   https://127.0.0.1:6443\na line\n"


def test_at_a_terminal_steps_are_replaced() -> None:
    output = StringIO()
    console = Console(output, Paint(True), live=True)
    console.begin("node")
    console.begin("node", "3/7")
    console.line("between")
    console.done("node", "ready")
    clear = "\r\x1b[K"
    assert output.getvalue() == (
        "\x1b[2m  node         ...\x1b[0m" + clear + "\x1b[2m  node         3/7\x1b[0m" + clear + "between\n"
        "\x1b[2m  node         ...\x1b[0m" + clear + "  \x1b[1mnode        \x1b[0m ready\n"
    )


def test_characters_outside_the_terminal_encoding() -> None:
    raw = BytesIO()
    stream = TextIOWrapper(raw, encoding="ascii")
    Console(stream).line("caf\u00e9 \udcff")
    assert raw.getvalue() == b"caf\\xe9 \\udcff\n"
