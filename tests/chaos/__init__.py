"""Processes killed at random times: no acknowledged write may be lost."""
