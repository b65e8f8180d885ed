"""Keys of batches on disk: one that may have arrived keeps its key for good, so it counts once."""

from __future__ import annotations

from deniable.transport.spool import Spool
from deniable.wire.batch import Batch
from deniable.wire.report import Report, Stratum


def taken(spool):
    """Take the one batch of a spool that nobody has seen."""
    spool.put(Batch.of("shop", (Report(Stratum("m", 1, "0" * 16, "2027-01-15", ""), b"\0"),)), seen=False)
    return spool.take()


def test_a_batch_that_may_have_arrived_keeps_its_key(tmp_path):
    spool = Spool(tmp_path / "spool")
    batch = taken(spool)
    for _ in range(2):
        spool.release(batch)
        assert spool.take().key == batch.key
    spool.release(batch, seen=False)  # it was seen before
    assert spool.take().key == batch.key


def test_a_batch_that_nobody_has_seen_gets_another_key(tmp_path):
    spool = Spool(tmp_path / "spool")
    batch = taken(spool)
    spool.release(batch, seen=False)
    again = spool.take()
    assert again.key != batch.key
    assert again.body == batch.body
