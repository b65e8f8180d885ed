"""Chance is exact: the operating system's bytes are enumerated, or replaced, and every probability comes out as asked."""

from __future__ import annotations

import ast
from collections import Counter, deque
from fractions import Fraction
from itertools import combinations
from math import comb
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import deniable
from deniable import mechanisms
from deniable import source as sources
from deniable.mechanisms.permanent import Permanent
from deniable.proof import Tape, distribution
from deniable.source import OS, OsSource, Source, _threshold

SIMPLE = [
    (1, 2),
    (1, 3),
    (3, 4),
    (1, 256),
    (255, 256),
    (1, 257),
    (85, 256),
    (1, 65536),
    (65535, 65536),
    (2, 7),
    (10**30, 10**30 + 1),
]
WEIGHTS = [(11674931554, 11674931554 + k * 2**32) for k in (1, 3, 255)] + [(2**32, 11674931554 + 2**32)]
FRACTIONS = SIMPLE + WEIGHTS
ALL_BYTES = bytes(range(256))
ODD_FRACTION = st.integers(1, 2**80).flatmap(lambda den: st.tuples(st.integers(0, den), st.just(den)))


def ones(size: int) -> bytes:
    return b"\xff" * size


def zeros(size: int) -> bytes:
    return bytes(size)


class Counting(OsSource):
    """Remembers what each level of `bits` asked for."""

    def __init__(self) -> None:
        self.levels: list[tuple[int, int, int]] = []

    def bits(self, num: int, den: int, count: int) -> bytes:
        self.levels.append((num, den, count))
        return super().bits(num, den, count)


@pytest.mark.parametrize(("num", "den"), [*FRACTIONS, (0, 1), (1, 1), (0, 7), (7, 7)])
def test_one_digit_and_the_rest_are_the_fraction(num, den):
    """Of 256 bytes, those that decide for the event and the tie's share of it add up to the probability exactly."""
    table, remainder = _threshold(num, den)
    assert len(table) == 256
    assert table.count(b"1") + table.count(b"?") * Fraction(remainder, den) == Fraction(256 * num, den)


@pytest.mark.parametrize(("num", "den"), FRACTIONS)
def test_all_first_bytes(feeding, num, den):
    """Over all 256 first bytes the event happens floor(256 p) times outright, and one tie is carried on with the exact rest."""
    source = Counting()
    with feeding(ALL_BYTES, then=ones):
        draws = source.bits(num, den, 256)
    outright = 256 * num // den
    assert draws == b"1" * outright + b"0" * (256 - outright)
    carried = Fraction(256 * num, den) - outright
    assert [Fraction(n, d) for n, d, _ in source.levels[1:2]] == ([carried] if carried else [])


@pytest.mark.parametrize(("num", "den"), FRACTIONS)
def test_all_pairs_of_bytes(feeding, num, den):
    """Over all 65,536 pairs of bytes the event happens floor(65536 p) times outright."""
    tie = 256 * num // den
    firsts = b"".join(bytes([first]) * 256 for first in range(256))
    with feeding(firsts, *([ALL_BYTES] if 256 * num % den else []), then=ones) as feed:
        draws = OS.bits(num, den, 65536)
    assert draws.count(b"1") == 65536 * num // den
    assert draws[: 256 * tie] == b"1" * (256 * tie)
    assert len(feed.sizes) < 3 or feed.sizes[2] == 1


@given(fraction=ODD_FRACTION, count=st.integers(1, 40), data=st.data())
def test_bits_are_comparisons_of_numbers(feeding, fraction, count, data):
    """Each bit says whether the number that its own bytes write in base 256 is below the probability, ties in their places."""
    num, den = fraction
    digit = 256 * num // den

    def chunk(size: int) -> bytes:  # bytes near the threshold make ties likely
        near = st.sampled_from(sorted({max(0, min(255, digit + k)) for k in (-1, 0, 1)}))
        return bytes(data.draw(st.lists(near | st.integers(0, 255), min_size=size, max_size=size)))

    with feeding(chunk, chunk, chunk, then=zeros if num < den else ones) as feed:
        draws = OS.bits(num, den, count)
    numbers = [b""] * count
    waiting = list(range(count))
    for given_bytes in feed.outputs:
        for i, byte in zip(waiting, given_bytes, strict=True):
            numbers[i] += bytes([byte])
        waiting = [
            i
            for i in waiting
            if int.from_bytes(numbers[i], "big") == 256 ** len(numbers[i]) * num // den and 256 ** len(numbers[i]) * num % den
        ]
    assert not waiting
    expected = [Fraction(int.from_bytes(b, "big"), 256 ** len(b)) < Fraction(num, den) for b in numbers]
    assert [digit == ord("1") for digit in draws] == expected


def test_ties_keep_their_places(feeding):
    """Every tie is replaced by its own second draw, in order, also at both ends and side by side."""
    with feeding(bytes([85, 0, 85, 85, 200, 85]), bytes([0, 255, 85, 84]), bytes([255])):
        assert OS.bits(1, 3, 6) == b"110001"


@pytest.mark.parametrize("count", [0, 1, 300])
@pytest.mark.parametrize("den", [1, 3, 2**40])
def test_certain_and_impossible_events(den, count):
    """An event of probability 0 never happens and one of probability 1 always does."""
    assert OS.bits(0, den, count) == b"0" * count
    assert OS.bits(den, den, count) == b"1" * count
    assert OS.bernoulli(0, den) is False
    assert OS.bernoulli(den, den) is True


@pytest.mark.parametrize("byte", [0, 84, 85, 86, 255])
def test_bernoulli_is_one_bit(feeding, byte):
    """A single event is decided like the first of many."""
    with feeding(bytes([byte]), then=ones):
        single = OS.bernoulli(1, 3)
    with feeding(bytes([byte]), then=ones):
        assert single is (OS.bits(1, 3, 1) == b"1")


class RejectedError(Exception):
    """The byte was not accepted."""


def reject(_size: int) -> bytes:
    raise RejectedError


@pytest.mark.parametrize("n", [1, 2, 3, 5, 7, 16, 17, 100, 127, 128, 129, 255, 256])
def test_below_over_all_bytes(feeding, n):
    """Over all bytes `below` accepts equally many for every outcome."""
    accepted: Counter[int] = Counter()
    for byte in range(256):
        with feeding(*([bytes([byte])] if n > 1 else [b""]), then=reject):
            try:
                accepted[OS.below(n)] += 1
            except RejectedError:
                continue
    assert sorted(accepted) == list(range(n))
    assert len(set(accepted.values())) == 1


@pytest.mark.parametrize("n", [257, 1000, 65535, 65536])
def test_below_over_all_pairs_of_bytes(feeding, n):
    """Over all pairs of bytes `below` accepts equally many for every outcome."""
    accepted: Counter[int] = Counter()
    words = deque([*range(65536), 0])  # the last is accepted for certain, and only ends the walk
    with feeding(then=lambda _size: words.popleft().to_bytes(2, "little")):
        while len(words) > 1:
            draw = OS.below(n)
            if words:
                accepted[draw] += 1
    assert sorted(accepted) == list(range(n))
    assert len(set(accepted.values())) == 1


@pytest.mark.parametrize(
    ("n", "size"),
    [
        *((n, 1) for n in range(2, 17)),
        (17, 1),
        (100, 1),
        (256, 1),
        (257, 2),
        (1000, 2),
        (4096, 2),
        (4097, 2),
        (65_535, 2),
        (65_536, 2),
    ],
)
def test_indices_over_all_words(feeding, n, size):
    """Over all words of the size in use, equally many are accepted for every index and the others are drawn again."""
    words = 256**size
    # One byte is taken modulo n below the greatest multiple of n; of two, as many bits as n needs are compared with n.
    outcomes = words // n if size == 1 else words >> (n - 1).bit_length()
    everything = b"".join(word.to_bytes(size, "little") for word in range(words))
    with feeding(everything, then=zeros) as feed:
        draws = OS.indices(n, words)
    rejected = words - n * outcomes
    assert feed.sizes[1:] == ([size * rejected] if rejected else [])
    assert Counter(draws[: words - rejected]) == dict.fromkeys(range(n), outcomes)
    assert draws[words - rejected :] == [0] * rejected


@pytest.mark.parametrize("n", [65_537, 10**6, 2**63 + 1, 2**64 - 1, 2**64])
def test_indices_reject_at_the_boundary(feeding, n):
    """With words of eight bytes the last accepted one is the last below the greatest multiple of n."""
    limit = 2**64 - 2**64 % n
    words = [0, n - 1, limit - 1, *([limit, 2**64 - 1] if limit < 2**64 else [])]
    with feeding(b"".join(word.to_bytes(8, "little") for word in words), then=zeros):
        draws = OS.indices(n, len(words))
    assert draws == [word % n if word < limit else 0 for word in words]


def test_indices_edges():
    """One alternative needs no draw, more than 2^64 are drawn one by one, and none are as good as none."""
    assert OS.indices(1, 5) == [0] * 5
    assert OS.indices(7, 0) == []
    assert all(0 <= i < 2**70 for i in OS.indices(2**70, 50))


@given(n=st.integers(1, 60), data=st.data())
def test_subsets_have_their_size(n, data):
    """Every drawn subset has exactly the size asked for, also where sizes are mixed, and no element beyond n."""
    sizes = data.draw(st.lists(st.integers(0, n), max_size=20))
    for source in (OS, _Plain()):
        draws = source.subsets(n, sizes)
        assert [subset.bit_count() for subset in draws] == sizes
        assert all(subset >> n == 0 for subset in draws)


@pytest.fixture
def force(monkeypatch):
    """Make the system's source draw subsets in one way, whatever their size."""

    def force_way(way):
        monkeypatch.setattr("deniable.source._few", lambda *_: way == "listed")
        monkeypatch.setattr("deniable.source._SPARSE", 0 if way == "sparse" else 10**9)
        sources._subset_coins.cache_clear()

    yield force_way
    sources._subset_coins.cache_clear()


class _Plain(Source):
    """The derived methods of `Source`, over the operating system's primitives."""

    def bernoulli(self, num: int, den: int) -> bool:
        return OS.bernoulli(num, den)

    def below(self, n: int) -> int:
        return OS.below(n)


@pytest.mark.parametrize(("n", "size"), [(1, 0), (1, 1), (4, 0), (4, 1), (4, 2), (4, 4), (6, 3), (6, 5)])
def test_derived_subsets_are_uniform_exactly(n, size):
    """Walking all draws of Floyd's algorithm gives every subset the same probability."""
    masses = distribution(lambda tape: tape.subsets(n, [size] * 1)[0])
    assert set(masses.values()) == {Fraction(1, comb(n, size))}
    assert len(masses) == comb(n, size)


@pytest.mark.parametrize(
    ("n", "size"), [(4, 2), (6, 1), (6, 3), (6, 5), (8, 2), (9, 7), (12, 2), (10, 9), (5, 1), (40, 1), (40, 39)]
)
@pytest.mark.parametrize("way", ["listed", "sparse", "coins"])
def test_fast_subsets_are_uniform(chi_square, force, n, size, way):
    """The subsets taken from a list of all, drawn element by element, and made by coins and mending, are equally likely."""
    force(way)
    total = max(4000, 30 * comb(n, size))
    observed = Counter(subset for _ in range(4) for subset in OS.subsets(n, [size] * (total // 4)))
    everything = [sum(1 << i for i in chosen) for chosen in combinations(range(n), size)]
    chi_square(observed, dict.fromkeys(everything, Fraction(1, len(everything))))


@pytest.mark.parametrize("way", ["listed", "sparse", "coins"])
def test_fast_subsets_are_independent(chi_square, force, way):
    """Neighbours in one call, which share a supply of picks, are independent."""
    force(way)
    draws = OS.subsets(4, [2] * 40_000)
    single = [sum(1 << i for i in chosen) for chosen in combinations(range(4), 2)]
    chi_square(Counter(zip(draws[::2], draws[1::2], strict=True)), {(a, b): Fraction(1, 36) for a in single for b in single})


@pytest.mark.parametrize(("num", "den"), [(1, 3), (1, 1000), (999, 1000), (11674931554, 11674931554 + 2**32)])
def test_the_system_draws_as_asked(chi_square, num, den):
    """On the real generator the number of events is as expected."""
    draws = OS.bits(num, den, 200_000)
    p = Fraction(num, den)
    chi_square(Counter(draws), {ord("1"): p, ord("0"): 1 - p})


def test_derived_bits_follow_the_primitives():
    """A source that gives only the two primitives derives bits and indices from them, one draw at a time."""
    assert distribution(lambda tape: tape.bits(1, 3, 2)) == {
        b"11": Fraction(1, 9),
        b"10": Fraction(2, 9),
        b"01": Fraction(2, 9),
        b"00": Fraction(4, 9),
    }
    assert set(distribution(lambda tape: bytes(tape.indices(3, 2))).values()) == {Fraction(1, 9)}
    assert Tape([1, 0]).bits(1, 2, 2) == b"01"


@pytest.mark.parametrize("name", mechanisms.names())
def test_a_silent_system_makes_no_report(monkeypatch, name):
    """When the operating system refuses randomness its error passes through and there is no payload."""

    def refuse(_size: int) -> bytes:
        raise OSError("no entropy")

    mechanism = mechanisms.make(name, domain_size=2, epsilon=2)
    monkeypatch.setattr("deniable.source.os.urandom", refuse)
    with pytest.raises(OSError, match="no entropy"):
        mechanism.randomize(1)
    assert not mechanism._hand[2]


class _Whole(_Plain):
    """Refuses what is not a whole number."""

    def bernoulli(self, num: int, den: int) -> bool:
        assert type(num) is type(den) is int
        return super().bernoulli(num, den)

    def below(self, n: int) -> int:
        assert type(n) is int
        return super().below(n)


@pytest.mark.parametrize("name", mechanisms.names())
@pytest.mark.parametrize("epsilon", ["0.3", "2.5"])
def test_no_draw_takes_a_float(name, epsilon):
    """Every probability and every number of outcomes that a mechanism asks for is a whole number or a ratio of two."""
    mechanism = mechanisms.make(name, domain_size=2, epsilon=1.5 if name == "coin" else epsilon)
    for value in (0, 1):
        mechanism.randomize(value, source=_Whole())
    if isinstance(mechanism, Permanent):
        response = mechanism.respond_permanently(0, 1, _Whole())
        mechanism.respond_instantly(0, response, _Whole())


def test_the_source_divides_no_floats():
    """The module that draws has no float and no division that makes one, but for the time that uploads wait."""
    (tree,) = [tree for file, tree in _modules() if file == "source.py"]
    drawing = [node for node in tree.body if getattr(node, "name", "") != "jitter"]
    nodes = [node for statement in drawing for node in ast.walk(statement)]
    assert not [ast.unparse(node) for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, float)]
    assert not [ast.unparse(node) for node in nodes if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div)]


def _modules():
    root = Path(deniable.__file__).parent
    return [(path.relative_to(root).as_posix(), ast.parse(path.read_text("utf-8"))) for path in sorted(root.rglob("*.py"))]


def _imports(tree: ast.AST) -> set[str]:
    modules = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            modules |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return modules


def _names(tree: ast.AST) -> set[str]:
    return {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)} | {
        node.id for node in ast.walk(tree) if isinstance(node, ast.Name)
    }


def test_no_other_source_of_chance():
    """No module of the client but `source` reaches a generator, and only `batch` makes a (random) UUID."""
    generators = {"SystemRandom", "getrandom", "getrandbits", "randbelow", "token_bytes", "uuid1", "uuid3", "uuid5"}
    for file, tree in _modules():
        imported, named = _imports(tree), _names(tree)
        roots = {name.partition(".")[0] for name in imported}
        assert not roots & {"random", "numpy", "secrets", "scipy", "numba", "redis", "flask", "msgspec"}, file
        assert not named & generators, file
        # Nothing is imported by a name made at run time, but what packages hand on, by a table of names within themselves.
        assert "import_module" not in named or file.endswith("__init__.py"), file
        assert "urandom" not in named or file == "source.py", file
        assert "uuid.uuid4" not in imported or file == "wire/batch.py", file
        assert "os.urandom" not in imported, file


def test_only_mechanisms_are_imported_by_name():
    """The one import by name begins with the package of the mechanisms, and every entry of its table is a module there."""
    (tree,) = [tree for file, tree in _modules() if file == "mechanisms/__init__.py"]
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "import_module"]
    assert [ast.unparse(call) for call in calls] == ["import_module(f'{__name__}.{module}')"]
    folder = Path(mechanisms.__file__).parent
    assert all((folder / f"{module.replace('.', '/')}.py").is_file() for module, _ in mechanisms._ALL.values())


def test_tossed_coins_have_their_bias_exactly(monkeypatch):
    """Of the 64 equally likely runs of six random bits, exactly `coins` give a 1."""
    for coins in range(1, 64):
        skipped = (coins & -coins).bit_length() - 1  # digits that are 0 at the end of the probability take no random bit
        planes = [sum((run >> digit & 1) << run for run in range(64)) for digit in range(skipped, 6)]
        feed = iter([plane.to_bytes(8, "little") for plane in planes])
        monkeypatch.setattr(
            "deniable.source.os.urandom", lambda size, feed=feed: next(feed) if size == 8 else pytest.fail("another size")
        )
        assert int.from_bytes(OS._toss(coins, 8), "little").bit_count() == coins
        assert next(feed, None) is None
