"""Bulk jobs on topics, each a function `job(spark, spec, progress) -> summary` in a module of its own.

A spec is a frozen value that says what to do; a summary is a frozen struct that says what was done, with a JSON form.
A job that is killed leaves its last good state, and the next run with the same spec goes on from there.
`topics pipeline …` is a thin shell around these functions.
"""
