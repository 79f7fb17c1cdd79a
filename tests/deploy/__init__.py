"""Tests of the Helm chart, of the manifests rendered from it, and of the permissions they grant."""
