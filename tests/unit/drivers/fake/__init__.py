"""Tests of the fake driver."""
