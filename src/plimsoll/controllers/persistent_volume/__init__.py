"""PersistentVolumes and claims: binding, provisioning, reclaiming, protection. START at controller.py."""
