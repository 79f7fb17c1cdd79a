"""API reference of the public names of the package, from their signatures and docstrings."""

from __future__ import annotations

import enum
import inspect
import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import plimsoll

_INTRO = """Generated from the docstrings. All names are imported from `plimsoll`; other modules may change
between versions. [Python](../docs/python.md) shows them by task, with examples that the tests run."""
#: Areas by the component that defines a name, in the order of the page.
_AREAS = {
    "api": "Objects and values",
    "cel": "Selectors",
    "allocator": "Allocation",
    "ledger": "Ledger",
    "controllers": "Quota",
    "scheduler": "Scheduling",
    "tools": "Reports and what-if",
    "apiserver": "API server and validation",
    "client": "Client",
    "up": "Local cluster",
    "errors": "Errors",
}
#: Longest signature that stays on one line.
_WIDTH = 100
_LONGEST_DEFAULT = 40


def python_reference() -> str:
    """Return the page: every public name once, by area."""
    by_area: dict[str, list[str]] = defaultdict(list)
    for name in plimsoll.__all__:
        by_area[plimsoll.HOMES[name].split(".")[1]].append(name)
    parts = ["# Python API reference", _INTRO]
    for area, title in _AREAS.items():
        parts.append(f"## {title}")
        for name in by_area.pop(area):
            parts += _describe(name, getattr(plimsoll, name))
    assert not by_area, f"no area for {sorted(by_area)}"
    return "\n\n".join(parts) + "\n"


def _describe(name: str, value: Any) -> Iterator[str]:
    yield f"### {name}"
    if inspect.isclass(value):
        yield from _class(name, value)
    else:
        prefix = "async " if inspect.iscoroutinefunction(value) else ""
        yield _code(f"{prefix}{name}{_signature(value)}")
        yield _prose(value)


def _class(name: str, value: type) -> Iterator[str]:
    bases = [base.__name__ for base in value.__bases__ if base.__module__.startswith("plimsoll")]
    shown = f"class {name}" + (f"({', '.join(bases)})" if bases else "")
    if issubclass(value, enum.Enum):
        yield _code(shown)
        yield _prose(value)
        yield "| member | value |\n|---|---|" + "".join(
            f"\n| `{each.name}` | `{each.value}` |" for each in value
        )
    else:
        yield _code(f"class {name}{_signature(value, instance=False)}" if _is_made_by_users(value) else shown)
        yield _prose(value)
    rows = [_member(key, each) for key, each in _members(value)]
    if rows:
        yield "| member | |\n|---|---|\n" + "\n".join(rows)


def _is_made_by_users(value: type) -> bool:
    """Return whether the class has a signature of its own worth showing."""
    try:
        parameters = inspect.signature(value).parameters
    except (TypeError, ValueError):
        return False
    return not any(each.kind is each.VAR_POSITIONAL for each in parameters.values())


def _members(value: type) -> Iterator[tuple[str, Any]]:
    """Yield public methods and properties of the class and of its bases in this package."""
    seen: set[str] = set()
    for base in value.__mro__:
        if not base.__module__.startswith("plimsoll"):
            continue
        for key, each in vars(base).items():
            member = each.__func__ if isinstance(each, classmethod | staticmethod) else each
            documented = inspect.isfunction(member) or isinstance(member, property)
            if documented and not key.startswith("_") and key not in seen:
                seen.add(key)
                yield key, each


def _member(key: str, value: Any) -> str:
    if isinstance(value, property):
        return f"| `.{key}` | {_first_line(value)} |"
    bound = isinstance(value, classmethod)
    function = value.__func__ if isinstance(value, classmethod | staticmethod) else value
    signature = _signature(function, instance=not isinstance(value, staticmethod), annotated=False)
    prefix = "await " if inspect.iscoroutinefunction(function) else ""
    owner = "" if not bound and not isinstance(value, staticmethod) else " (of the class)"
    return f"| `{prefix}.{key}{signature}`{owner} | {_first_line(function)} |".replace("||", "| |")


def _signature(value: Any, *, instance: bool = False, annotated: bool = True) -> str:
    """Return the signature as text; without `self` or `cls` if it is an instance's."""
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):
        return "(...)"
    parameters = [_plain_parameter(each, annotated) for each in found.parameters.values()]
    returned = _plain_annotation(found.return_annotation) if annotated else inspect.Signature.empty
    return str(
        found.replace(parameters=parameters[1:] if instance else parameters, return_annotation=returned)
    )


class _Text:
    """Text that a signature shows as it is."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _plain_parameter(parameter: inspect.Parameter, annotated: bool) -> inspect.Parameter:
    """Replace a default without a short readable form by dots."""
    annotation = _plain_annotation(parameter.annotation) if annotated else inspect.Parameter.empty
    default = parameter.default
    shown = repr(default)
    if default is not inspect.Parameter.empty and (len(shown) > _LONGEST_DEFAULT or "<" in shown):
        default = _Text("...")
    return parameter.replace(annotation=annotation, default=default)


def _plain_annotation(annotation: Any) -> Any:
    """Return an annotation without quotes and names of modules."""
    if annotation is inspect.Parameter.empty:
        return annotation
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return _Text(re.sub(r"\b(?:[a-z_]+\.)+([A-Z])", r"\1", text))


def _code(text: str) -> str:
    if len(text) > _WIDTH and "(" in text:
        head, _, rest = text.partition("(")
        inner, _, tail = rest.rpartition(")")
        text = f"{head}(\n    " + ",\n    ".join(_split(inner)) + f",\n){tail}"
    return f"```python\n{text}\n```"


def _split(text: str) -> Iterator[str]:
    """Split parameters at the commas outside of brackets."""
    depth, start = 0, 0
    for place, char in enumerate(text):
        depth += (char in "([{") - (char in ")]}")
        if char == "," and depth == 0:
            yield text[start:place].strip()
            start = place + 1
    yield text[start:].strip()


def _prose(value: Any) -> str:
    return _escape(inspect.getdoc(value) or "")


def _first_line(value: Any) -> str:
    text = (inspect.getdoc(value) or "").partition("\n\n")[0]
    return _escape(" ".join(text.split())).replace("|", "\\|")


def _escape(text: str) -> str:
    """Escape angle brackets outside of code, which Markdown would take for HTML."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else part.replace("<", "&lt;") for part in parts)
