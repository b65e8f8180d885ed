"""What people may answer to a metric: types, domains, and the axis of a number."""
