"""What the values of a segment generalise to."""

from __future__ import annotations

import pytest

from deniable.errors import RegistryError
from deniable.registry import parse
from deniable.registry.hierarchy import MAX_STEPS, parents

METRIC = '[metrics.m]\ntype = "boolean"\nepsilon = 1\ndescription = "d"\nowner = "o"\n'
HEAD = 'format = 1\napp = "shop"\n'
SEGMENTS = '[segments]\nplatform = ["debian", "fedora", "macos"]\nversion = ["2.4", "2.4.1", "3.0"]\n'


def registry(generalize: str):
    return parse(f"{HEAD}{SEGMENTS}{generalize}\n{METRIC}")


def test_a_separator_cuts_the_last_part():
    """With a separator each value generalises part by part, down to the first."""
    assert registry('[generalize]\nversion = "."').generalize == {
        "version": {"2.4.1": "2.4", "2.4": "2", "3.0": "3"},
    }
    assert parents(["2.4.1-rc1", "2.4.1"], "-") == {"2.4.1-rc1": "2.4.1"}


def test_a_table_of_words():
    """Words generalise as the table says, others do not."""
    table = '[generalize.platform]\ndebian = "linux"\nfedora = "linux"\nlinux = "unix"\nmacos = "unix"'
    assert registry(table).generalize == {"platform": {"debian": "linux", "fedora": "linux", "linux": "unix", "macos": "unix"}}
    branch = '[generalize.version]\n"2.4.1" = "2.4"\n"2.4" = "2"'
    assert registry(branch).generalize["version"] == {"2.4.1": "2.4", "2.4": "2"}


def test_without_a_table():
    """A registry need not generalise anything."""
    assert registry("").generalize == {}


LONG = ".".join("1" * (MAX_STEPS + 2))
FAULTS = [
    ("generalize = 3", 'generalize: write a table of segments, such as { version = "." }', 3),
    ('[generalize]\narch = "."', "generalize.arch: declare a segment of this name under [segments]", "arch"),
    (
        "[generalize]\nversion = 3",
        'generalize.version: write a table of words of the letters A to Z, digits and _.+-, such as { "2.4.1" = "2.4" }',
        3,
    ),
    (
        '[generalize]\nversion = ".."',
        "generalize.version: write one of the separators _ . + - in quotes, or a table of words",
        "..",
    ),
    ('[generalize]\nversion = ""', "generalize.version: write one of the separators _ . + - in quotes, or a table of words", ""),
    (
        '[generalize]\nversion = "4"',
        "generalize.version: write one of the separators _ . + - in quotes, or a table of words",
        "4",
    ),
    ('[generalize]\nplatform = "."', "generalize.platform: write a separator that occurs in the values of platform", "."),
    (
        '[generalize.version]\n"3.0" = 3',
        'generalize.version: write a table of words of the letters A to Z, digits and _.+-, such as { "2.4.1" = "2.4" }',
        {"3.0": 3},
    ),
    (
        '[generalize.version]\n"3.0" = "a,b"',
        'generalize.version: write a table of words of the letters A to Z, digits and _.+-, such as { "2.4.1" = "2.4" }',
        {"3.0": "a,b"},
    ),
    (
        '[generalize.version]\n"3.0" = ""',
        'generalize.version: write a table of words of the letters A to Z, digits and _.+-, such as { "2.4.1" = "2.4" }',
        {"3.0": ""},
    ),
    (
        '[generalize.version]\n"3.1" = "3"',
        "generalize.version has '3.1', which no value of version leads to: list it as a value, or remove it",
        "3.1",
    ),
    (
        '[generalize.platform]\ndebian = "macos"',
        "generalize.platform.debian: write another word; only values that begin with 'macos' may lead to it",
        "macos",
    ),
    (
        '[generalize.version]\n"3.0" = "2.4"',
        "generalize.version.3.0: write another word; only values that begin with '2.4' may lead to it",
        "2.4",
    ),
    (
        '[generalize.platform]\ndebian = "debian"',
        "generalize.platform leads from 'debian' back to itself: write a more general word for one of them",
        "debian",
    ),
    (
        '[generalize.platform]\ndebian = "a"\na = "b"\nb = "a"',
        "generalize.platform leads from 'a' back to itself: write a more general word for one of them",
        "a",
    ),
]


@pytest.mark.parametrize(("text", "rule", "value"), FAULTS, ids=range(len(FAULTS)))
def test_faults(text, rule, value):
    """A broken rule is one fault with the rule and the value."""
    before, after = (text + "\n", "") if text.startswith("generalize") else ("", text + "\n")
    with pytest.raises(RegistryError) as caught:
        parse(f"{before}{HEAD}{SEGMENTS}{after}{METRIC}")
    (fault,) = caught.value.faults
    assert (fault.metric, fault.rule) == ("-", rule)
    if fault.value is ...:
        assert repr(value) in rule or f".{value}:" in rule
    else:
        assert fault.value == value


def test_chains_are_short():
    """A value takes a bounded number of steps, and the bound itself is allowed."""
    text = f'{HEAD}[segments]\nv = ["%s"]\n[generalize]\nv = "."\n{METRIC}'
    with pytest.raises(
        RegistryError, match=r"generalize\.v leads from '1\.1\.1\.1\.1\.1\.1\.1\.1\.1' over more than 8 steps: leave some out"
    ) as caught:
        parse(text % LONG)
    assert len(caught.value.faults) == 1
    assert len(parse(text % LONG[:-2]).generalize["v"]) == MAX_STEPS


def test_a_faulty_segment_is_one_fault():
    """If the values have faults, `generalize` is not checked."""
    with pytest.raises(RegistryError) as caught:
        parse(f'{HEAD}[segments]\nv = []\n[generalize]\nv = "."\n{METRIC}')
    assert [fault.rule for fault in caught.value.faults] == [
        "segments.v: write a list of words of the letters A to Z, digits and _.+-, each in quotes"
    ]
