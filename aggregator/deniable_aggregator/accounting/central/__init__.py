"""Central noise: what answers cost that an operator publishes with Gaussian or Laplace noise. These are the textbook questions.

`noise` has the two kinds of noise, and adds up the queries by every method. `curves` has the same over orders and over queries,
and `plot` draws it. Epsilon is in nats. All results are upper bounds: rounding is upwards.
"""
