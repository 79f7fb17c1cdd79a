"""Reasons of a refusal: their values, their diagnosis, and their texts."""
