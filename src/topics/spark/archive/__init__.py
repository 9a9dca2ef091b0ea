"""An archive: a Delta table of records and one of losses. How it is read and written, and how one archive is told from
another."""
