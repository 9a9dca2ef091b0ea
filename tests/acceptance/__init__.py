"""Tests of the whole: real processes, real sockets, real time."""
