"""The Python client: `core` knows the protocol and does no I/O, `sync_client` is its shell over sockets."""
