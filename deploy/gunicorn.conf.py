"""Production settings: gunicorn -c deploy/gunicorn.conf.py 'deniable_server:create_app()'."""

import os

from deniable_server.gunicorn_conf import *  # noqa: F403 - a gunicorn configuration is its module's names

bind = f"0.0.0.0:{os.environ.get('PORT', '8080')}"
