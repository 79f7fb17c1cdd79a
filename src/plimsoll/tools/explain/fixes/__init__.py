"""Fixes for unschedulable pods: the search for the smallest change, and its application to a copy."""
