"""Numbers and ordered answers: means, distributions, quantiles, shares of ranges."""
