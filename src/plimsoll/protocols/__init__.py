"""The protocols of a node: gRPC messages, unix sockets, ttrpc and NRI, CDI. Imports nothing of ours.

`messages/` holds the message types, one module for each file of `proto/`; `rpc` serves and calls gRPC
services on unix sockets.
"""
