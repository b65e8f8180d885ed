"""``python -m deniable``."""

import sys

from deniable.cli import main

sys.exit(main())
