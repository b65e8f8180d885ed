"""Params files of google/rappor deployments, as their own tools write them."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from deniable.mechanisms.texts.google_rappor import Params

KEYS = ("numBits", "numHashes", "numCohorts", "probIrr0", "probIrr1", "probPrr")


def save_params(path: Path, params: Params) -> None:
    """Write parameters, as JSON if the path ends with ``.json`` and as CSV otherwise; probabilities are decimals."""
    shares = (Decimal(share.numerator) / share.denominator for share in (params.prob_p, params.prob_q, params.prob_f))
    values = [params.bits, params.hashes, params.cohorts, *(format(share, "f") for share in shares)]
    if path.suffix == ".json":
        text = "{" + ", ".join(f'"{key}": {value}' for key, value in zip(KEYS, values, strict=True)) + "}"
    else:
        text = "k,h,m,p,q,f\n" + ",".join(map(str, values))
    path.write_text(text + "\n", "utf-8")
