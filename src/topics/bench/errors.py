"""What can go wrong in a benchmark run."""

from topics.errors import TopicsError


class BenchError(TopicsError):
    """The run cannot go on: a target does not start, refuses its setup, or an option makes no sense."""


class MalformedReply(BenchError):
    """A target's answer makes no sense to the load generator, which gives the connection up."""
