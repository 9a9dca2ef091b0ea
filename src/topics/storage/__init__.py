"""Bytes on disk: the write-ahead log, segments, snapshots, and the one door to the file system.

Owns every file format and the order of writes and syncs that makes each operation survive a crash.
Knows nothing of topics' rules, sockets or the engine: it is handed bytes and numbers.
"""
