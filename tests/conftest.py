"""What holds for every test."""

import signal

from hypothesis import HealthCheck, settings

# How long an example takes says something about the machine and what else it does, nothing about the code.
settings.register_profile("topics", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("topics")

# A shell starts what it runs in the background with Ctrl-C ignored, and every process a test starts would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
