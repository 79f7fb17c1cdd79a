"""Defaulting, gate dropping and validation of what is written to the API; `write.py` is the door."""

from plimsoll.validate.permissions import Caller, Permission
from plimsoll.validate.problems import Problem, ProblemType
from plimsoll.validate.write import Prepared, Write, prepare

__all__ = ["Caller", "Permission", "Prepared", "Problem", "ProblemType", "Write", "prepare"]
