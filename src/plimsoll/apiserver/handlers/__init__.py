"""Request handlers, one module per verb or subresource: read, write, delete, watch, scale, discovery."""
