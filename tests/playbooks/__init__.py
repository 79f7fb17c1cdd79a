"""Conversations of a whole agent with its API server, its drivers and its containers."""
