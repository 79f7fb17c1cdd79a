"""Volumes of pods on a node whose containers are processes: START at manager.py."""
