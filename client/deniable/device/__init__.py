"""What a device keeps: state, what it spent, permanent responses, what it sent."""
