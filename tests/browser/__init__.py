"""Tests of the dashboard's page in a real headless Chromium."""
