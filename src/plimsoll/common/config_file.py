"""Configuration files, read field by field with errors that name the field and the fix.

A `ConfigSection` is a mapping of the file and its location. Every field is taken once; unknown fields are
errors, because a misspelled setting must not be ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

from plimsoll.api.config import Config, convert_config, convert_field, format_value
from plimsoll.api.gates import Gates
from plimsoll.api.quantity import Number
from plimsoll.common.yaml import load_documents
from plimsoll.errors import ConfigError, InputError

T = TypeVar("T")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "": 1.0}
_SECONDS_MAX = 86_400


def read_config(tree: Any, wanted: Callable[..., T], where: str) -> T:
    """Convert a parsed file to a configuration type, or with a function; None is an empty file.

    Raises ConfigError with the file, the field and the fix.
    """
    try:
        found: T = convert_config({} if tree is None else tree, wanted)
    except InputError as error:
        raise ConfigError(f"{where}: {error}") from None
    return found


def read_flag(value: Any, wanted: Any, flag: str) -> Any:
    """Convert the value of a flag, as `read_config` does; raises ConfigError with the flag and the fix."""
    try:
        return convert_field(value, wanted, flag)
    except InputError as error:
        raise ConfigError(str(error)) from None


def read_seconds(value: Any) -> float:
    """Convert a duration: a number of seconds, or a string such as 500ms, 15s or 5m."""
    text = value.text if isinstance(value, Number) else value if isinstance(value, str) else repr(value)
    unit = next(unit for unit in _UNITS if text.endswith(unit))
    try:
        found = float(text.removesuffix(unit)) * _UNITS[unit]
    except ValueError:
        found = 0.0
    if not 0 < found <= _SECONDS_MAX:
        raise InputError(f"must be a time such as 500ms, 15s or 5m, not {format_value(value)}")
    return found


def _read_gates(value: Any) -> Gates:
    return Gates.of(convert_config(value, dict[str, bool]))


def _read_path(value: Any) -> Path | None:
    text = convert_config(value, str)
    return Path(text) if text else None


Seconds: TypeAlias = Annotated[float, read_seconds]
OptionalPath: TypeAlias = Annotated[Path | None, _read_path]
FeatureGates: TypeAlias = Annotated[Gates, _read_gates]


class LogConfig(Config, frozen=True, kw_only=True):
    """Format and verbosity of the log."""

    format: Literal["text", "json"] = "text"
    verbose: bool = False


def read_document(path: Path, what: str) -> Any:
    """Read the YAML document of a file, {} if it is empty; raises ConfigError if there are several."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from None
    try:
        documents = [tree for _, tree in load_documents(text)]
    except InputError as error:
        raise ConfigError(f"{path}: {error}") from None
    if len(documents) > 1:
        raise ConfigError(f"{path}: a {what} is one document, this file has {len(documents)}")
    return documents[0] if documents else {}


class ConfigSection:
    """Mapping in a configuration file; `end` reports fields that were not taken."""

    def __init__(self, tree: Any, where: str) -> None:
        self.where = where
        if tree is None:
            tree = {}
        if not isinstance(tree, Mapping):
            raise ConfigError(f"{where}: must be a mapping of settings, not {_describe(tree)}")
        self._left = {str(name): value for name, value in tree.items() if value is not None}
        self._taken: list[str] = []

    def take(self, name: str) -> Any:
        """Return the value of a field, None if it is not set."""
        self._taken.append(name)
        return self._left.pop(name, None)

    def text(self, name: str, default: str, *, choices: Iterable[str] = ()) -> str:
        value = self.take(name)
        if value is None:
            return default
        allowed = tuple(choices)
        if not isinstance(value, str) or (allowed and value not in allowed):
            wanted = f"one of {', '.join(allowed)}" if allowed else "a text"
            raise self.bad(name, f"must be {wanted}, not {_describe(value)}")
        return value

    def flag(self, name: str, default: bool) -> bool:
        value = self.take(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.bad(name, f"must be true or false, not {_describe(value)}")
        return value

    def number(self, name: str, default: int, *, least: int = 1, most: int = 1_000_000) -> int:
        value = self.take(name)
        if value is None:
            return default
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise self.bad(name, f"must be a whole number from {least} to {most}, not {_describe(value)}")
        return value

    def seconds(self, name: str, default: float) -> float:
        """Return a duration: a number of seconds, or a text such as 500ms, 15s or 5m."""
        value = self.take(name)
        if value is None:
            return default
        found = _seconds(value)
        if found is None or not 0 < found <= 86_400:
            raise self.bad(name, f"must be a time such as 500ms, 15s or 5m, not {_describe(value)}")
        return found

    def section(self, name: str) -> ConfigSection:
        return ConfigSection(
            self.take(name), f"{self.where}.{name}" if ": " in self.where else self._path(name)
        )

    def sections(self, name: str) -> list[ConfigSection]:
        """Return a list of mappings."""
        value = self.take(name)
        if value is None:
            return []
        if not isinstance(value, list) or not value:
            raise self.bad(name, f"must be a list with at least one entry, not {_describe(value)}")
        return [ConfigSection(item, f"{self._path(name)}[{place}]") for place, item in enumerate(value)]

    def rest(self) -> dict[str, Any]:
        """Return all fields that were not taken, for another reader."""
        rest, self._left = self._left, {}
        return rest

    def end(self) -> None:
        if self._left:
            name = sorted(self._left)[0]
            raise self.bad(name, f"unknown field; valid fields: {', '.join(self._taken)}")

    def bad(self, name: str, problem: str) -> ConfigError:
        return ConfigError(f"{self._path(name)}: {problem}")

    def _path(self, name: str) -> str:
        return f"{self.where}.{name}" if ": " in self.where else f"{self.where}: {name}"


def _seconds(value: object) -> float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return float(value)
    text = value.text if isinstance(value, Number) else value
    if not isinstance(text, str):
        return None
    for unit in ("ms", "s", "m", "h", ""):
        if text.endswith(unit):
            try:
                amount = float(text.removesuffix(unit))
            except ValueError:
                return None
            return amount * _UNITS.get(unit, 1.0)
    return None


def _describe(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
