"""What was found to be in order and need not be checked again.

Owns the memory for it. Objects made from one template come by the thousand with the very same spec, and the
same rules have the same to say of it: nothing. Only that is remembered, for texts of bounded length and a
bounded number of them; whatever has a problem is checked each time. What a check depends on beside the text
(gates, a name) is part of the key.
"""

from __future__ import annotations

from collections.abc import Iterable

from plimsoll.api.gates import Gates
from plimsoll.apiserver.validation.field_errors import FieldError, FieldErrors

_MOST = 512
_LONGEST = 16 * 1024

Key = tuple[bytes, bytes, Gates]


class ValidatedCache:
    """The inputs one check had nothing to say about."""

    def __init__(self, most: int = _MOST, longest: int = _LONGEST) -> None:
        self._most = most
        self._longest = longest
        self._fine: set[Key] = set()

    def __len__(self) -> int:
        return len(self._fine)

    def validate(self, key: Key, errors: Iterable[FieldError]) -> FieldErrors:
        """The problems; `errors` is not even begun where there are known to be none."""
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
