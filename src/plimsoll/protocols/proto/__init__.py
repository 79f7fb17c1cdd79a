"""The protocols as `.proto` files, and their descriptors as protoc compiles them."""
