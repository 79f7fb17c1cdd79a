"""What the wire says: quantities, objects, their wire forms and feature gates. Imports only errors."""
