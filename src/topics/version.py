"""The one place that knows the version of this package."""

VERSION = "0.2.0"
