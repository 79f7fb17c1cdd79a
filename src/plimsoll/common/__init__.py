"""Helpers shared by several components: checkpoint and configuration files, YAML, logging, health, clocks."""
