"""Drivers whose devices stand in a file."""
