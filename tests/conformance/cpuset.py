"""Suite `cpuset`: parsing, formatting and combining CPU sets."""

from __future__ import annotations

from typing import Any

from plimsoll.api.cpuset import CpuSet
from plimsoll.errors import InputError


def check(row: dict[str, Any]) -> str | None:
    found = _answer(row)
    return None if found == row["expect"] else f"is {found!r}, wanted {row['expect']!r}"


def _answer(row: dict[str, Any]) -> Any:
    if row["op"] == "parse":
        try:
            cpus = CpuSet.parse(row["input"])
        except InputError as error:
            return {"error": str(error)}
        return {"cpus": list(cpus), "size": len(cpus), "string": str(cpus)}
    if row["op"] == "format":
        return str(CpuSet(row["cpus"]))
    one, other = CpuSet.parse(row["a"]), CpuSet.parse(row["b"])
    match row["op"]:
        case "union":
            return str(one | other)
        case "intersection":
            return str(one & other)
        case "difference":
            return str(one - other)
        case "isSubsetOf":
            return one <= other
        case "equals":
            return one == other
        case op:
            return f"{op} is no operation on sets of CPUs"
