"""Production settings: gunicorn -c deploy/gunicorn.conf.py 'deniable_server:create_app()'."""

from deniable_server.gunicorn_conf import *  # noqa: F403 - a gunicorn configuration is its module's names

bind = "0.0.0.0:8080"
