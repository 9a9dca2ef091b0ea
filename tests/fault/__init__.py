"""Crashes, faults and damage on a simulated disk: what was promised is there afterwards."""
