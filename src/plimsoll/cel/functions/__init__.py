"""Every function of the selector environment, by name: one module per library."""

from __future__ import annotations

from plimsoll.cel.functions import (
    attributes,
    authorizer,
    cidr,
    formats,
    ip,
    lists,
    maps,
    optionals,
    quantity,
    regex,
    semver,
    sets,
    standard,
    strings,
    time,
    urls,
)
from plimsoll.cel.functions.registry import Function, join_libraries

#: In the order in which overloads of the same name are tried.
FUNCTIONS: dict[str, Function] = join_libraries(
    module.FUNCTIONS
    for module in (
        standard,
        time,
        urls,
        regex,
        lists,
        optionals,
        quantity,
        strings,
        sets,
        ip,
        cidr,
        formats,
        maps,
        semver,
        attributes,
        authorizer,
    )
)

__all__ = ["FUNCTIONS", "Function"]
