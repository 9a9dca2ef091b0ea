"""Stand-ins that only our own tests use, in several rooms. Those for users are in `topics.testing`."""
