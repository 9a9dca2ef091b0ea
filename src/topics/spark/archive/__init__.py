"""An archive: a Delta table of records and one of losses. How it is read, written and identified."""
