"""Deployment controller: rolls ReplicaSets out and back."""
