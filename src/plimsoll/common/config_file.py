"""Configuration files: reading, and types of values that several files have.

`api/config.py` converts a parsed file to its configuration type.
"""

from __future__ import annotations

from collections.abc import Callable
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
    return parse_document(text, what, str(path))


def parse_document(text: str | bytes, what: str, where: str) -> Any:
    """Parse the YAML document of a text, {} if it is empty; raises ConfigError if there are several."""
    try:
        documents = [tree for _, tree in load_documents(text)]
    except InputError as error:
        raise ConfigError(f"{where}: {error}") from None
    if len(documents) > 1:
        raise ConfigError(f"{where}: a {what} must be one document, found {len(documents)}")
    return documents[0] if documents else {}
