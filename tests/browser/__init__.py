"""Tests in a real browser: Debian's Chromium, or any other on the PATH."""
