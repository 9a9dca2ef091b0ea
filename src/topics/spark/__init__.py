"""Spark's view of topics: readers and writers for DataFrames. Nothing of the server imports this room."""
