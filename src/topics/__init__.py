"""topics: a persistent event engine. Named append-only logs over a JSON-first HTTP API."""
