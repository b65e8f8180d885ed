"""Attacks: what somebody learns from all reports of a device, or from calls of a randomizer."""
