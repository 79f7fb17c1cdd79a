"""Directories of provisioned volumes."""

from __future__ import annotations

import os
import shutil
from pathlib import Path


def make_directory(path: Path) -> None:
    """Create the directory of a volume, in which every user of a pod can write; OSError on failure."""
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    path.mkdir(exist_ok=True)
    path.chmod(0o777)


def remove_directory(path: Path) -> None:
    """Remove the directory of a volume and its files, if it exists; OSError on failure."""
    if os.path.lexists(path):
        shutil.rmtree(path)
