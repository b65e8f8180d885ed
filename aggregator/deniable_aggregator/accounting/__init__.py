"""Composition: what all reports of one device cost together, by every bound of the literature, and exactly.

`spend` holds the cost of reports. `sums`, `zcdp`, `renyi` and `losses` add spends up, each by its own method. `account` lists the
totals and chooses the one to quote. `plan` reads the spends off a registry, and `statement` writes all of it for people.
`crowd` has what the sum of many reports says of one, and `readers` who learns no more than that. `library` is a second opinion.

Epsilon is in nats. All results are upper bounds: rounding is upwards.
"""
