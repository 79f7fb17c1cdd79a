"""Tests of shadow mode."""
