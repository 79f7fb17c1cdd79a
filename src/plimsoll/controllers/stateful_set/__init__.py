"""StatefulSet controller: pods with stable names and storage, created and updated in order."""
