"""The benchmark: one load generator, the things it measures, and the report that compares them.

Nothing else imports this package except the command line. It talks to every target over TCP, the way a client does, so
every figure here is one a client can reach.
"""
