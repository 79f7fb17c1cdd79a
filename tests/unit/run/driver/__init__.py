"""Drivers as processes."""
