"""Node protocols: gRPC messages, Unix sockets, ttrpc, NRI and CDI.

`messages/` has the message types, one module per file of `proto/`; `rpc` serves and calls gRPC services on
Unix sockets.
"""
