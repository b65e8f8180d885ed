"""One report among others: `crowd` has the bound, `readers` and `relay` who learns no more than that, and on what condition."""
