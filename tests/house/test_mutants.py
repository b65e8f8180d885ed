"""The planted mistakes of benchmarks/mutants.py fit the code: each can be planted, and its tests are there."""

from __future__ import annotations

import importlib.util
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def mutants():
    spec = importlib.util.spec_from_file_location("mutants", ROOT / "benchmarks" / "mutants.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_each_can_be_planted(mutants):
    faults = {mistake.id: mutants.fault(mistake) for mistake in mutants.read()}
    assert {name: fault for name, fault in faults.items() if fault} == {}


def test_there_are_many_in_each_area(mutants):
    areas = Counter(mistake.area for mistake in mutants.read())
    assert areas.total() >= 120
    assert min(areas.values()) >= 4


def test_each_says_what_it_breaks_and_who_should_notice(mutants):
    for mistake in mutants.read():
        assert mistake.breaks.endswith("."), mistake.id
        assert 2 <= len(mistake.tests) <= 6, mistake.id


def test_what_does_not_fit_is_told(mutants, tmp_path):
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_a.py").write_text("", "utf-8")
    (tmp_path / "a.py").write_text("n < 1\nn < 1\nm < 1\n", "utf-8")

    def fault(old, new="x", test="tests/test_a.py"):
        return mutants.fault(mutants.Mistake("area", "name", "a.py", old, new, "", (test,)), tmp_path)

    assert fault("m < 1") == ""
    assert fault("n < 1") == "the old text occurs 2 times in a.py; it must occur once"
    assert fault("k < 1") == "the old text occurs 0 times in a.py; it must occur once"
    assert fault("m < 1", "m < 1") == "the new text is the old one"
    assert fault("m < 1", test="tests/test_b.py") == "there is no tests/test_b.py"
