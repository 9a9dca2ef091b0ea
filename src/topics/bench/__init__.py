"""The benchmark: one load generator, the targets it measures, and the report that compares them.

Only the command line imports this package. It talks to every target over TCP, as a client does, so a client can reach
every figure it reports.
"""
