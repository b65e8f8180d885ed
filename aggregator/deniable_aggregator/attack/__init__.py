"""The averaging attack, simulated: what somebody learns who sees all reports of a device."""
