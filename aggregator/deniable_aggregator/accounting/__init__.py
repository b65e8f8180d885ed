"""What many reports of one device come to: every bound of the literature side by side, and the exact one.

`spend` says what reports cost, `sums`, `zcdp`, `renyi` and `losses` add them up, each in its own way, and `account` puts the
totals beside each other and says which to quote. `plan` reads the spends off a registry, `statement` writes all of it for people.
`group` has bounds for several people at once, `amplification` smaller numbers under conditions that are not ours, and `library` a
second opinion.

Epsilon is in nats. Whatever is returned is an upper bound: what is rounded is rounded up.
"""
