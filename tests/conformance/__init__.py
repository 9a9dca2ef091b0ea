"""The `/v0` contract as tests. They speak only HTTP, so they run against any server that claims to implement it."""
