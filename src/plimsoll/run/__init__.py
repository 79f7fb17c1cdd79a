"""Processes: the parts of Plimsoll wired together."""
