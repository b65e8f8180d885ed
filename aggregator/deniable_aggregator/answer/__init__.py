"""Answers: what the reports of a metric say, with its uncertainty, as the API and the pages show it."""
