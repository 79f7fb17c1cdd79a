"""Tests of the structure of code, package and documentation."""
