"""Cache of inputs that passed validation.

Objects created from one template have identical specs, so that validating each of them again is wasted work.
Only inputs without errors are cached, limited in size and number. Everything a validation depends on besides
the spec (gates, a name) is part of the key.
"""

from __future__ import annotations

from collections.abc import Iterable

from plimsoll.api.gates import Gates
from plimsoll.apiserver.validation.field_errors import FieldError, FieldErrors

_MOST = 512
_LONGEST = 16 * 1024

Key = tuple[bytes, bytes, Gates]


class ValidatedCache:
    """Inputs that passed one validation."""

    def __init__(self, most: int = _MOST, longest: int = _LONGEST) -> None:
        self._most = most
        self._longest = longest
        self._fine: set[Key] = set()

    def __len__(self) -> int:
        return len(self._fine)

    def validate(self, key: Key, errors: Iterable[FieldError]) -> FieldErrors:
        """Yield the errors; `errors` is not evaluated if the key is known to have none."""
        if key in self._fine:
            return
        fine = True
        for error in errors:
            fine = False
            yield error
        if fine and len(key[0]) + len(key[1]) <= self._longest:
            if len(self._fine) >= self._most:
                self._fine.clear()
            self._fine.add(key)
