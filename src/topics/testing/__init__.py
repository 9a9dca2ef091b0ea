"""For tests of whatever uses topics: `fake_clock.FakeClock`, `fake_disk.FakeDisk`, `simulated_server.SimulatedServer`.

With them a test has a whole server in its own process, no sockets, threads or waiting, and crashes when it likes.
Stand-ins that only tests of this project use are not here, but in its `tests/doubles`.
"""
