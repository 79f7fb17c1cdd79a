"""Fixes for pending pods: changes that were tried in memory, and hints that could not be."""
