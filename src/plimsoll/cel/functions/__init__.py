"""Functions of the selector environment by name; one module per library.

Implements docs/spec/api.md, "CEL environment": standard library (with cross-type numeric comparison), strings
v2, lists (Kubernetes and extension v3), regex, sets, URLs, IP, CIDR, quantity, semver, format, optionals,
two-variable comprehensions, the authorizer functions, and `jsonpatch.escapeKey` for mutating policies.
"""

from __future__ import annotations

from plimsoll.cel.functions import (
    arithmetic,
    attributes,
    authorizer,
    cidr,
    comparisons,
    conversions,
    formats,
    ip,
    json_patch,
    lists,
    maps,
    operators,
    optionals,
    quantity,
    regex,
    semver,
    sets,
    strings,
    time,
    urls,
)
from plimsoll.cel.overloads.overload import Function, join_libraries

#: The order of the libraries is the order in which overloads of the same name are tried.
FUNCTIONS: dict[str, Function] = join_libraries(
    module.FUNCTIONS
    for module in (
        operators,
        arithmetic,
        comparisons,
        conversions,
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
        json_patch,
    )
)
#: Functions that are declared only with the feature gate for list attributes.
LIST_ATTRIBUTE_FUNCTIONS = frozenset(one.name for one in attributes.FUNCTIONS)
#: Functions that are declared for the mutations of admission policies only.
PATCH_FUNCTIONS = frozenset(one.name for one in json_patch.FUNCTIONS)

__all__ = ["FUNCTIONS", "LIST_ATTRIBUTE_FUNCTIONS", "PATCH_FUNCTIONS", "Function"]
