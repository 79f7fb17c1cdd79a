"""Tests of the resource metrics API."""
