"""Tests of driver processes."""
