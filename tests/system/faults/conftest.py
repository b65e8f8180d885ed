"""Lets the tests here find what they share: the proxy, the workers that kill themselves, and the stage of the chaos runs."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
