"""The `topics` data source for PySpark: every topic a DataFrame, live or from its files, in both directions.

`options`, `offsets` and `rows` are plain functions over values; `http_reader` and `file_reader` read a range of one
topic; `source` and `writer` are what Spark calls. Nothing of the server imports this room.
"""
