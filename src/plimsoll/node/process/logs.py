"""Lines one can grep about what a node does; the form is that of all processes here."""

from __future__ import annotations

import logging

LOG = logging.getLogger("plimsoll.node")


def tell(what: str, /, level: int = logging.INFO, **facts: object) -> None:
    """Log what happened, with its facts in the order given; empty ones are left out."""
    if LOG.isEnabledFor(level):
        LOG.log(level, what, extra={"facts": facts})
