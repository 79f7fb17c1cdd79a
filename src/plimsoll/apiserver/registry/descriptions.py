"""Data files of the package, and the descriptions that `kubectl explain` prints.

`descriptions.txt` has lines `TYPE TEXT` and `TYPE.FIELD TEXT`, such as `core.v1.Pod.spec What ...`; a line
that begins with a blank continues the previous one. Types and fields without an entry have no description.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def data_files() -> frozenset[str]:
    """Return the names of the data files of this package."""
    return frozenset(file.name for file in (files("plimsoll.apiserver.registry") / "data").iterdir())


def read_data(name: str) -> str:
    """Read a data file of this package; "" if it does not exist. The name may be untrusted."""
    if name not in data_files():
        return ""
    return (files("plimsoll.apiserver.registry") / "data" / name).read_text(encoding="utf-8")


@cache
def read_descriptions() -> dict[str, str]:
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
    """Return the description of a type or field, or ""."""
    texts = read_descriptions()
    found = texts.get(name)
    if found is None and name.startswith("resource."):  # all versions have the same schema and descriptions
        group, _, rest = name.split(".", 2)
        found = texts.get(f"{group}.v1.{rest}")
    return found or ""
