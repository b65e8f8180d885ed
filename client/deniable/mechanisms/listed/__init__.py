"""Mechanisms for listed answers, of which each report is drawn anew."""
