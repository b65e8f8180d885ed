"""What a registry leads to: the error of its estimates, and the space that its sums take in the store."""
