"""How gunicorn runs the server: worker class and log."""
