"""Processes killed at random moments: nothing that was acknowledged may be lost."""
