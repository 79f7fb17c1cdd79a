"""Tests of the code's shape rather than of what it does."""
