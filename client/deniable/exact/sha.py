"""SHA-256 without `hashlib`, which loads OpenSSL: that takes longer than any module of ours. `random` does the same."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hashlib import sha256
else:
    try:
        if sys.version_info >= (3, 12):
            from _sha2 import sha256
        else:
            from _sha256 import sha256
    except ImportError:  # a Python that was built without it
        from hashlib import sha256

__all__ = ["sha256"]
