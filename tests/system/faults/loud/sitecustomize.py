"""Log all that there is: Python imports this before a program begins, where this folder is on its path."""

import logging

logging.basicConfig(level=logging.DEBUG)
