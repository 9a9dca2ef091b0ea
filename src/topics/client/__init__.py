"""The Python client. `calls` has a function for each request, `caller` sends them and tries again, `reading` goes
through a topic; none of them does I/O. `sync_client` and `async_client` are the shells, over `sockets` and
`asyncio_port`."""
