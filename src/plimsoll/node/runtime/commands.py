"""Command of a container. Pure."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from plimsoll.node.containers import ContainerSpec, RuntimeFault
from plimsoll.node.runtime.container_spec import CREATE_ERROR

#: More than any machine has.
_CPUS_MAX = 1 << 16
#: Base images whose own command is a shell, which every machine has.
_SHELL_IMAGES = frozenset({"alpine", "bash", "busybox", "debian", "fedora", "ubuntu"})
_RANGE = re.compile(r"([0-9]{1,6})(?:-([0-9]{1,6}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Command:
    """Command line, or a pause until stopped."""

    argv: tuple[str, ...] = ()
    pause: bool = False


def command_of(spec: ContainerSpec, images: Mapping[str, Sequence[str]]) -> Command | RuntimeFault:
    """Return the container's own command, else that of its image; base images run a shell."""
    if spec.command:
        return Command(spec.command)
    for name in image_names(spec.image):
        if images.get(name):
            return Command(tuple(images[name]))
    if image_names(spec.image)[-1] == "pause":
        return Command(pause=True)
    if image_names(spec.image)[-1] in _SHELL_IMAGES:
        return Command(("sh",))
    text = (
        f"no command for container {spec.name!r}: image {spec.image!r} is only a label here, local commands "
        "are run; give the container a command, or give the image one in the node's settings"
    )
    return RuntimeFault(CREATE_ERROR, text)


def image_names(image: str) -> tuple[str, str, str]:
    """Return an image's full name, the name without tag and digest, and its last part."""
    bare = image.partition("@")[0]
    directory, slash, last = bare.rpartition("/")
    last = last.partition(":")[0]
    return image, directory + slash + last, last


def stop_signal(name: str) -> int:
    """Return the signal that asks a container to terminate; SIGTERM unless the name is another signal."""
    text = name.strip().upper()
    if text.isascii() and text.isdigit() and 0 < int(text[:4]) < signal.NSIG:
        return int(text)
    known = {member.name: member for member in signal.Signals}
    text = text if text.startswith("SIG") else f"SIG{text}"
    if text in known:
        return int(known[text])
    # Real-time signals have names that count from one end or the other.
    found = re.fullmatch(r"SIGRT(MIN|MAX)([+-][0-9]{1,2})", text)
    if found:
        number = int(known[f"SIGRT{found[1]}"]) + int(found[2])
        if signal.SIGRTMIN <= number <= signal.SIGRTMAX:
            return number
    return int(signal.SIGTERM)


def cpus_in(text: str) -> set[int] | None:
    """Parse a CPU list such as `0-3,8`; None if it is malformed or empty."""
    cpus: set[int] = set()
    for piece in text.replace(" ", "").split(","):
        found = _RANGE.fullmatch(piece)
        if not found:
            return None
        first, last = int(found[1]), int(found[2] or found[1])
        if last < first or last >= _CPUS_MAX:
            return None
        cpus.update(range(first, last + 1))
    return cpus
