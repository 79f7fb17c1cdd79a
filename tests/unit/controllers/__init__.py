"""Tests of the controllers: plans by examples and properties, loops against a small server in memory."""
