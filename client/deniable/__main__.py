"""``python -m deniable``."""

import sys

from deniable.commands.entry import main

sys.exit(main())
