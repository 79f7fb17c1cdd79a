"""Settings for the whole suite."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# A slow or busy machine must not fail a property; CI runs the same examples every time.
for _profile, _fixed in (("default", False), ("ci", True)):
    settings.register_profile(
        _profile, deadline=None, derandomize=_fixed, suppress_health_check=[HealthCheck.too_slow]
    )
settings.load_profile("ci" if os.environ.get("CI") else "default")
