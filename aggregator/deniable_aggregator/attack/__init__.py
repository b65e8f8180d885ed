"""Attacks: what somebody learns from all reports of a device, from two publications, or from calls of a randomizer."""
