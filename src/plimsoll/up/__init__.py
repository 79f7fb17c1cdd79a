"""A whole cluster on this machine, as `plimsoll up` runs it.

START HERE: `up.py`, its parts and their order. `settings.py` says what is wanted, `serve.py` is the process,
`simulated.py` plays nodes of manifests, `ports.py` and `console.py` are what people see of it.
"""

from plimsoll.up.settings import UpSettings
from plimsoll.up.up import Up, ensure_class

__all__ = ["Up", "UpSettings", "ensure_class"]
