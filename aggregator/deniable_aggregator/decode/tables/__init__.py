"""Several questions at once: tables of true values, and how likely reports are under them."""
