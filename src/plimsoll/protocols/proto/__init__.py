"""Protocol definitions (`.proto` files) and their descriptors as compiled by protoc."""
