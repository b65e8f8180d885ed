"""What crosses the network: the layout of a payload, reports, batches."""
