"""Tests of the controllers that own pods."""
