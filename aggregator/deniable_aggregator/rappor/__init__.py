"""Files of google/rappor, decoded here."""
