"""The package's data files, and the words that `kubectl explain` prints.

Owns `descriptions.txt`: lines `TYPE TEXT` and `TYPE.FIELD TEXT`, such as `core.v1.Pod.spec What ...`; a line
that begins with a blank continues the one before. What has no words there has none.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def data_files() -> frozenset[str]:
    """The names of the data files of this package."""
    return frozenset(file.name for file in (files("plimsoll.apiserver.registry") / "data").iterdir())


def read_data(name: str) -> str:
    """A data file of this package; "" if there is none. The name may come from anybody."""
    if name not in data_files():
        return ""
    return (files("plimsoll.apiserver.registry") / "data" / name).read_text(encoding="utf-8")


@cache
def _descriptions() -> dict[str, str]:
    texts: dict[str, str] = {}
    name = ""
    for line in read_data("descriptions.txt").splitlines():
        if line.startswith(" "):
            texts[name] += " " + line.strip()
        elif line and not line.startswith("#"):
            name, _, text = line.partition(" ")
            texts[name] = text
    return texts


def describe(name: str) -> str:
    """What is said about a type or a field, "" if nothing is."""
    texts = _descriptions()
    found = texts.get(name)
    if found is None and name.startswith("resource."):  # its versions have the same shape and words
        group, _, rest = name.split(".", 2)
        found = texts.get(f"{group}.v1.{rest}")
    return found or ""
