"""Public results, for everybody: rounded, and of closed releases only."""
