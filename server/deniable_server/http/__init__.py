"""What every request goes through: its number, its limits, its errors."""
