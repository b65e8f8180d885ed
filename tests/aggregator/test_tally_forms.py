"""A tally is a list of additions while that is shorter, and cells after that: its sums are the same in each form."""

from __future__ import annotations

from itertools import count

import numpy as np
import pytest
from stores import WHEEL

from deniable.wire.layout import Layout
from deniable_aggregator.store import Store, connect
from deniable_aggregator.store.sums import deltas, tallies
from deniable_aggregator.store.sums.deltas import Weights

from .test_store import THEME

WIDTH = 40_000
KEY = "{shop}:tally:" + "|".join(map(str, THEME))


@pytest.fixture(params=["server", WHEEL])
def store(request, start_store):
    client = connect(start_store(request.param))
    client.flushall()
    shop = Store(client, "shop")
    shop.partitions[0].join()
    yield shop
    client.close()


def add(store, *batches):
    """Commit deltas, each given by cell; return the stored bytes."""
    for entry in batches:
        delta = np.zeros(WIDTH, np.int64)
        delta[list(entry)] = list(entry.values())
        assert store.partitions[0].commit("w", [], {THEME: delta}, 0) == []
    return store._client.get(KEY)


def total(store):
    return store.read(Layout(1, WIDTH, "index"), [THEME]).counts[0]


def test_one_report_takes_a_few_bytes(store):
    """Whatever cell it has, and a weight tally likewise."""
    assert len(add(store, {WIDTH - 1: 1})) == 5 + 8
    assert len(add(store, {3: 1})) == 5 + 16
    assert total(store)[[3, WIDTH - 1]].tolist() == [1, 1]
    weights = np.zeros(WIDTH, np.int64)
    weights[WIDTH - 1] = 1
    store.partitions[0].commit("w", [], {Weights(THEME): weights}, 0)
    assert store._client.strlen(KEY.replace("tally", "weights")) == 5 + 8
    assert store.partitions[0].read_weights(Layout(1, WIDTH - 1, "bits"), [THEME]).tolist() == weights.tolist()


def test_few_cells_are_cells_at_once(store):
    """Where a list would be longer."""
    assert add(store, {0: 7}) == (7).to_bytes(8)
    assert add(store, {1: 2}) == (7).to_bytes(8) + (2).to_bytes(8)


@pytest.mark.parametrize("far", [WIDTH - 1, 500])
def test_one_report_far_away_makes_no_cells_of_all_between(store, far):
    """Cells become a list again, and its sums are the same; then more reports make cells of it once more."""
    add(store, *({each % 40: 1 + each} for each in range(60)))
    before = total(store)
    assert store._client.strlen(KEY) == 8 * 40
    assert len(add(store, {far: 1})) == 5 + 8 * 41
    before[far] += 1
    assert total(store).tolist() == before.tolist()
    run = dict.fromkeys(range(64), 2)
    add(store, run)
    before[:64] += 2
    assert total(store).tolist() == before.tolist()


def test_cells_that_are_too_large_for_a_list_stay(store):
    """Their sums are exact nevertheless."""
    add(store, *({each % 40: 1 << 40} for each in range(60)))
    assert len(add(store, {1000: 1})) == 8 * 1001
    assert total(store)[[0, 20, 39, 1000]].tolist() == [2 << 40, 1 << 40, 1 << 40, 1]


@pytest.mark.parametrize("size", [1, 3, 31, 40, 700])
def test_the_sums_are_exact_in_each_form(store, size):
    """By additions, by runs, with negative deltas and large ones; it is never longer than its cells and one head."""
    rng, expected, forms = np.random.default_rng(size), np.zeros(WIDTH, np.int64), set()
    for number in count():
        chosen = rng.choice(300, size, replace=False) if size <= 300 else np.arange(size)
        values = rng.integers(-5, 1 << (40 if number % 5 == 4 else 20), size)
        value = add(store, dict(zip(chosen.tolist(), values.tolist(), strict=True)))
        expected[chosen] += values
        assert total(store).tolist() == expected.tolist()
        assert len(value) <= 8 * 701 + 5
        forms.add(len(value) % 8)
        if 0 in forms and number > 10:
            break
    assert size >= 300 or forms == {0, 5}


def test_a_list_becomes_cells_after_so_many_additions(store):
    """Also where cells are longer: it would be read for ever more slowly."""
    delta = np.zeros(WIDTH, np.int64)
    delta[0:32760:9] = 1  # so sparse that it comes as additions
    delta[-1] = 1
    for _ in range(9):
        store.partitions[0].commit("w", [], {THEME: delta}, 0)
    assert store._client.strlen(KEY) == 8 * WIDTH
    assert total(store).tolist() == (9 * delta).tolist()


def test_one_list_becomes_cells_in_a_commit(store):
    """The others do so in the next ones, so no script takes long for it. All sums are exact meanwhile."""
    strata = [THEME._replace(segment=f"s={number}") for number in range(4)]
    many, few = np.zeros(WIDTH, np.int64), np.zeros(WIDTH, np.int64)
    many[0 : 9 * 3633 : 9], many[-1] = 1, 1
    few[0:2000:10] = 1
    for stratum in strata:
        for _ in range(9):
            store.partitions[0].commit("w", [], {stratum: many}, 0)
    forms = []
    for times in range(6):
        sums = store.sums(Layout(1, WIDTH, "index"), strata)
        assert all(each.tally().counts[0].tolist() == (9 * many + times * few).tolist() for each in sums)
        forms.append(sum(store._client.strlen(store.partitions[0].tallies.key(tallies.name(each))) % 8 == 0 for each in strata))
        assert deltas.fit(dict.fromkeys(strata, few))
        store.partitions[0].commit("w", [], dict.fromkeys(strata, few), 0)
    assert forms == [0, 1, 2, 3, 4, 4]


@pytest.mark.parametrize(
    "cells",
    [
        [],
        [0, 0],
        [5],
        [0, 0, 1],
        [0] * 100 + [-3],
        [0] * 100 + [1 << 31],
        [0] * 100 + [-(1 << 31)],
        list(range(50)),
        [0] * 99 + [1 << 40],
    ],
)
def test_what_is_written_is_read(cells):
    """In the shorter of both forms, and whatever the cells are."""
    value = tallies.written(np.array(cells, np.int64))
    assert tallies.cells(value).tolist() == cells
    assert len(value) <= 8 * len(cells)
