"""Whole servers as processes, on real disks."""
