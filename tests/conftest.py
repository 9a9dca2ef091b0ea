"""What holds for every test."""

from hypothesis import HealthCheck, settings

# How long an example takes says something about the machine and what else it does, nothing about the code.
settings.register_profile("topics", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("topics")
