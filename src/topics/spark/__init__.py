"""The `topics` data source for PySpark: a topic is a DataFrame, read live or from its files, and can be written to.

`options`, `offsets` and `rows` are plain functions over values; `http_reader` and `file_reader` read a range of one
topic; `source` and `writer` are what Spark calls. The server never imports this room.
"""
