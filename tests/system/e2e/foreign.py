"""A client written from docs/reference/wire alone: it imports nothing of ours, and knows a registry by its sheet only."""

from __future__ import annotations

import gzip
import hmac
import json
import os
import urllib.error
import urllib.request
import uuid
from base64 import b64encode
from datetime import UTC, datetime, timedelta
from decimal import ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from hashlib import md5, sha256
from itertools import combinations
from math import comb, floor, lcm, log, prod

N = 1 << 32


# Chance


class System:
    """U and B from the operating system."""

    def below(self, n):
        bits = (n - 1).bit_length()
        while True:
            size = (bits + 7) // 8
            draw = int.from_bytes(os.urandom(size), "big") >> (8 * size - bits)
            if draw < n:
                return draw

    def event(self, probability):
        return int(self.below(probability.denominator) < probability.numerator)


def run(chance, probability, count):
    """B(p) x k."""
    bits = 0
    for _ in range(count):
        bits = bits << 1 | chance.event(probability)
    return bits


# Answers and periods


def fit(text, length):
    prefix = "".join("?" if c == "\0" or "\ud800" <= c <= "\udfff" else c for c in text[:length])
    while len(prefix.encode()) > length:
        prefix = prefix[:-1]
    return prefix


def word_of(metric, position):
    """Return the bytes of a position as `google_rappor` hashes it."""
    size = metric["max_length"] or (8 if metric["type"] == "key" else ((domain(metric) - 1).bit_length() + 7) // 8)
    return position.to_bytes(size, "big").rstrip(b"\0")


def domain(metric):
    if metric["type"] == "string":
        return 256 ** metric["max_length"]
    if metric["type"] == "number":
        return 2 if metric["rounded"] else metric["bins"] or metric["steps"] + 1
    if metric["type"] == "set":
        return 1 << len(metric["values"])
    return 1 << 64 if metric["type"] == "key" else len(metric["values"])


def step_of(metric, number):
    """Return the step of a range that is nearest to a number."""
    low, high = map(Fraction, metric["range"])
    if number <= low:
        return 0
    if number >= high:
        return metric["steps"]
    if metric["scale"] == "log":
        return round(metric["steps"] * log(number / low) / log(high / low))
    return floor(metric["steps"] * (Fraction(number) - low) / (high - low) + Fraction(1, 2))


def number_position(metric, answer):
    """Return the position of a number, before it is rounded to an end, or None of what is no number."""
    if answer is None:
        answer = Fraction(metric["none"] or metric["range"][0])
    if isinstance(answer, bool) or not isinstance(answer, int | float | Fraction) or str(answer) == "nan":
        return None
    step = step_of(metric, answer)
    return step if metric["bins"] is None else min(step * metric["bins"] // metric["steps"], metric["bins"] - 1)


def set_position(metric, answer):
    if not isinstance(answer, list):
        return None
    bits = 0
    for option in answer:
        known = option if option in metric["values"] else metric["other"]
        if known is None:
            return None
        bits |= 1 << metric["values"].index(known)
    return bits


def position(metric, answer):
    """Return the position of an answer, or None of one that is not declared."""
    if metric["type"] == "number":
        return number_position(metric, answer)
    if answer is None:
        answer = metric["none"]
    if metric["type"] == "set":
        return set_position(metric, answer)
    if metric["type"] == "string":
        if not isinstance(answer, str):
            return None
        written = fit(answer, metric["max_length"]).encode()
        return int.from_bytes(written + bytes(metric["max_length"] - len(written)), "big")
    if metric["type"] == "key":
        return answer if type(answer) is int and 0 <= answer < 1 << 64 else None
    places = [i for i, value in enumerate(metric["values"]) if type(value) is type(answer) and value == answer]
    return places[0] if places else None


def period(moment, length):
    utc = moment.astimezone(UTC)
    if length == "week":
        year, week, _ = utc.isocalendar()
        return f"{year:04}-W{week:02}"
    return f"{utc:%Y-%m-%dT%H}"[: {"hour": 13, "day": 10, "month": 7}[length]]


def segment(metric, own):
    return ",".join(f"{name}={own[name]}" for name in metric["segments"])


def fingerprint(id_, metric):
    answers = [*metric["range"], metric["unit"], metric["scale"]] if metric["type"] == "number" else metric["values"] or []
    meaning = [id_, metric["version"], metric["type"], answers, metric["period"], metric["segments"], metric["canonical"]]
    return sha256(written(meaning).encode()).hexdigest()[:16]


def written(value):
    """JSON as fingerprints have it, by hand."""
    if isinstance(value, list):
        return "[" + ", ".join(map(written, value)) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    short = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}
    units = value.encode("utf-16-be")
    content = ""
    for i in range(0, len(units), 2):
        unit = int.from_bytes(units[i : i + 2], "big")
        content += short.get(chr(unit), chr(unit) if 32 <= unit <= 126 else f"\\u{unit:04x}")
    return f'"{content}"'


# Payloads


def payload(layout, row, content):
    if layout["kind"] == "index":
        return (row * layout["width"] + content).to_bytes(layout["payload_bytes"], "little")
    bits = layout["payload_bytes"] - layout["row_bytes"]
    return row.to_bytes(layout["row_bytes"], "little") + content.to_bytes(bits, "little")


# Constants


def weight(x):
    context = Context(prec=60, rounding=ROUND_FLOOR)
    power = context.exp(context.divide(Decimal(x.numerator), Decimal(x.denominator)))
    return int(context.multiply(power, Decimal(N)).to_integral_value(rounding=ROUND_FLOOR))


def keep(w, cells):
    return Fraction(w, w + (cells - 1) * N)


def second_flip(first, both):
    return (both - first) / (1 - 2 * first)


def flip(x):
    return Fraction(N, weight(x) + N)


def expected_at_once(metric, e):  # noqa: PLR0911 - one for each line of the table
    """Work out the probabilities of a report in one step, as the table of constants says."""
    name, constants, d, w = metric["mechanism"], metric["constants"], domain(metric), weight(e)
    if name == "pgr":
        q, t = constants["order"], constants["dimension"]
        every, n = (q**t - 1) // (q - 1), (q ** (t - 1) - 1) // (q - 1)
        return {"keep": Fraction(n * w, n * w + (every - n) * N)}
    if name == "general_hadamard":
        half, columns = constants["size"] // 2, constants["blocks"] * constants["size"]
        return {"inside": Fraction(half * w, half * w + (columns - half) * N)}
    if name == "google_rappor":
        p, q, half = (Fraction(constants[each]) for each in ("other_again", "one_again", "flip_permanent"))
        return {"one": q - (q - p) * half, "other": p + (q - p) * half}
    if name in ("window", "sampled_options", "sampled_pair"):
        return {"keep": Fraction(w, w + constants["blocks"] * N) if name == "window" else keep(w, metric["layout"]["width"])}
    if name == "padded_subset":
        k, s = constants["size"], constants["most"]
        weights = [(w if j else N) * comb(s, j) * comb(metric["layout"]["width"], k - j) for j in range(min(s, k) + 1)]
        return {f"own_{j}": Fraction(weights[j], sum(weights[j:])) for j in range(min(s, k))}
    if name in ("coin", "hadamard", "subset"):
        size = constants.get("size", 1)
        keeps = {"hadamard": keep(w, 2), "subset": Fraction(size * w, size * w + (d - size) * N)}
        return {"keep": keeps[name]} if name in keeps else {}
    if name in ("sue", "oue", "l_osue"):
        other = flip(e / 2 if name == "sue" else e)
        return {"one": 1 - other if name == "sue" else Fraction(1, 2), "other": other}
    if name in ("cms", "hcms", "rappor", "dbitflip"):
        parts = {"cms": 2, "hcms": 1, "rappor": 2 * constants.get("hashes", 0), "dbitflip": min(metric["layout"]["width"], 2)}
        return {"flip": flip(e / parts[name])}
    return {"keep": keep(w, constants["family"]["width"] if "family" in constants else d)}


def expected(metric):
    """Work out all probabilities of a metric from its epsilons."""
    name, probabilities = metric["mechanism"], expected_at_once(metric, Fraction(metric["epsilon"]))
    if metric["epsilon_permanent"] is None:
        return probabilities
    e, cells = Fraction(metric["epsilon_permanent"]), metric["layout"]["width"]
    if name in ("l_grr", "loloha"):
        w = weight(e)
        r = Fraction(N, w + (cells - 1) * N)
        probabilities["keep_permanent"] = keep(w, cells)
        probabilities["keep_again"] = (probabilities["keep"] - r) / (probabilities["keep_permanent"] - r)
    elif name == "l_osue":
        probabilities["other_permanent"] = flip(e)
        probabilities["flip_again"] = second_flip(probabilities["other_permanent"], probabilities["other"])
    elif name == "rappor":
        probabilities["flip_permanent"] = flip(e / (2 * metric["constants"]["hashes"]))
        probabilities["flip_again"] = second_flip(probabilities["flip_permanent"], probabilities["flip"])
    return probabilities


# Hash functions


def multiply(a, b, polynomial):
    """Multiply polynomials over two elements."""
    degree, product = polynomial.bit_length() - 1, 0
    for bit in range(degree):
        if b >> bit & 1:
            product ^= a << bit
    for bit in range(2 * degree, degree - 1, -1):
        if product >> bit & 1:
            product ^= polynomial << (bit - degree)
    return product


def digits_of(number, base, count):
    """Return the digits of a number, the lowest first."""
    return [number // base**i % base for i in range(count)]


def pool_key(metric, place):
    if metric["type"] == "string" and metric["max_length"] > 8:
        return int.from_bytes(sha256(word_of(metric, place)).digest()[:8], "big")
    return place


def hashed(family, r, value):
    """Hash a position, or of a pool its key."""
    width = family["width"]
    if family["kind"] == "linear":
        count = family["digits"]
        return sum(a * b for a, b in zip(digits_of(r, width, count), digits_of(value, width, count), strict=True)) % width
    if family["kind"] == "line":
        y, x = divmod(value, width)
        return y if r == width else x ^ multiply(r, y, family["polynomial"])
    digest = sha256(f"deniable {family['label']} {r}".encode()).digest()
    a, b, c = (int.from_bytes(digest[8 * i : 8 * i + 8], "big") for i in range(3))
    x, y = divmod(value, 1 << 32)
    return ((a * x + b * y + c) % (1 << 64) // (1 << 32)) * width // (1 << 32)


def h(metric, r, place):
    family = metric["constants"]["family"]
    return hashed(family, r, pool_key(metric, place) if family["kind"] == "pool" else place)


def level_of(constants, r):
    return max(i for i, bound in enumerate(constants["bounds"]) if bound <= r)


def extend(k, chunk):
    mask = (1 << 64) - 1
    w = k + (chunk + 1) * 0x9E3779B97F4A7C15 & mask
    w = (w ^ w >> 30) * 0xBF58476D1CE4E5B9 & mask
    w = (w ^ w >> 27) * 0x94D049BB133111EB & mask
    return w ^ w >> 31


def prefix_key(constants, level, place):
    k = begin = 0
    for end in sorted(set(constants["lengths"][: level + 1])):
        k = extend(k, (place >> (constants["bits"] - end)) % (1 << (end - begin)))
        begin = end
    return k


def filter_of(metric, r, place):
    constants, width = metric["constants"], metric["layout"]["width"]
    count, bits = constants["hashes"], 0
    if metric["mechanism"] == "google_rappor":
        digest = md5(r.to_bytes(4, "big") + word_of(metric, place)).digest()
        places = [byte % width for byte in digest[:count]]
    elif constants["family"] is None:
        places = [place]
    else:
        places = [h(metric, number, place) for number in range(r * count, (r + 1) * count)]
    for bit in places:
        bits |= 1 << bit
    return bits


# Mechanisms


def common(a, b):
    return (a & b).bit_count() % 2


def p_of(metric, name):
    return Fraction(metric["constants"][name])


def column(row, number, odd):
    low = row & -row
    lower = number // low * 2 * low + number % low
    return lower if common(lower, row) == odd else lower + low


def replaced(bits, place, coin):
    return bits & ~(1 << place) | coin << place


def shifted(cell, cells, keeps, chance):
    truth, other = chance.event(keeps), chance.below(cells - 1)
    return (cell + (0 if truth else other + 1)) % cells


def point(constants, number):
    q, t = constants["order"], constants["dimension"]
    m = max(m for m in range(t) if (q**m - 1) // (q - 1) <= number)
    return digits_of(number - (q**m - 1) // (q - 1) + q**m, q, t)[::-1]


def supports(constants, x, place):
    total, polynomial = 0, constants["polynomial"]
    for a, b in zip(point(constants, x), reversed(point(constants, place)), strict=True):
        total = total ^ multiply(a, b, polynomial) if polynomial else (total + a * b) % constants["order"]
    return total == 0


def coin(_, v, chance):
    truth, other = chance.event(Fraction(1, 2)), chance.event(Fraction(1, 2))
    return 0, v if truth else other


def grr(metric, v, chance):
    return 0, shifted(v, domain(metric), p_of(metric, "keep"), chance)


def unary(metric, v, chance):
    bits = run(chance, p_of(metric, "other"), domain(metric))
    return 0, replaced(bits, v, chance.event(p_of(metric, "one")))


def floyd(n, size, chance):
    chosen = set()
    for i in range(n - size, n):
        j = chance.below(i + 1)
        chosen.add(i if j in chosen else j)
    return chosen


def subset(metric, v, chance):
    d, size = domain(metric), metric["constants"]["size"]
    truth = chance.event(p_of(metric, "keep"))
    distances = {x + 1 for x in floyd(d - 1, size - truth, chance)} | ({0} if truth else set())
    return 0, sum(1 << (v + x) % d for x in distances)


def local_hash(metric, v, chance):
    r = chance.below(metric["layout"]["rows"])
    return r, shifted(h(metric, r, v), metric["layout"]["width"], p_of(metric, "keep"), chance)


def prefix(metric, v, chance):
    constants, r = metric["constants"], chance.below(metric["layout"]["rows"])
    cell = hashed(constants["family"], r, prefix_key(constants, level_of(constants, r), v))
    return r, shifted(cell, metric["layout"]["width"], p_of(metric, "keep"), chance)


def cms(metric, v, chance):
    z, r = run(chance, p_of(metric, "flip"), metric["layout"]["width"]), chance.below(metric["layout"]["rows"])
    return r, z ^ 1 << h(metric, r, v)


def hcms(metric, v, chance):
    f, r = chance.event(p_of(metric, "flip")), chance.below(metric["layout"]["rows"])
    y = chance.below(metric["constants"]["family"]["width"])
    return r, 2 * y + (common(y, h(metric, r, v)) ^ f)


def dbitflip(metric, v, chance):
    z, r = run(chance, p_of(metric, "flip"), metric["layout"]["width"]), chance.below(metric["layout"]["rows"])
    return r, flipped(metric, r, v, z)


def rappor(metric, v, chance):
    z, r = run(chance, p_of(metric, "flip"), metric["layout"]["width"]), chance.below(metric["layout"]["rows"])
    return r, z ^ filter_of(metric, r, v)


def google_rappor(metric, v, chance):
    one, other, width = p_of(metric, "one"), p_of(metric, "other"), metric["layout"]["width"]
    z, y = run(chance, other, width), run(chance, (one - other) / (1 - other), width)
    r = chance.below(metric["layout"]["rows"])
    return r, z | y & filter_of(metric, r, v)


def hadamard(metric, v, chance):
    inside = chance.event(p_of(metric, "keep"))
    return 0, column(v + 1, chance.below(metric["layout"]["width"] // 2), 1 - inside)


def general_hadamard(metric, v, chance):
    blocks, size = metric["constants"]["blocks"], metric["constants"]["size"]
    half = size // 2
    i, c, o = chance.event(p_of(metric, "inside")), chance.below(half), chance.below(blocks * size - half)
    slot = v * metric["constants"]["step"] % (blocks * (size - 1))
    block, row = slot // (size - 1), slot % (size - 1) + 1
    if i:
        y = column(row, c, 0)
    elif o < half:
        y = column(row, o, 1)
    else:
        y, block = (o - half) % size, (block + 1 + (o - half) // size) % blocks
    return 0, block * size + y


def pgr(metric, v, chance):
    on = chance.event(p_of(metric, "keep"))
    while supports(metric["constants"], x := chance.below(metric["layout"]["width"]), v) != on:
        pass
    return 0, x


def window(metric, v, chance):
    blocks, length, d = metric["constants"]["blocks"], metric["constants"]["length"], domain(metric)
    inside, a, b = chance.event(p_of(metric, "keep")), chance.below(length), chance.below(blocks * length)
    point = (v * blocks * length + chance.below(d - 1)) // (d - 1)
    return 0, (point + (a if inside else length + b)) % metric["layout"]["width"]


def sampled(metric, v, chance):
    options, r, k = domain(metric).bit_length() - 1, chance.below(metric["layout"]["rows"]), metric["constants"].get("size")
    chosen = list(combinations(range(options), 2))[r] if k is None else [(r + i) % options for i in range(k)]
    cell = sum((v >> option & 1) << i for i, option in enumerate(chosen))
    return r, shifted(cell, metric["layout"]["width"], p_of(metric, "keep"), chance)


def padded_subset(metric, v, chance):
    m, k, s = domain(metric).bit_length() - 1, metric["constants"]["size"], metric["constants"]["most"]
    t = chance.below(prod(range(s + 1, m + 1)))
    coins = [chance.event(p_of(metric, f"own_{j}")) for j in range(min(s, k))]
    own = [*coins, 1].index(1)
    among, others = floyd(s, own, chance), floyd(m, k - own, chance)
    places = []
    for n in range(s + 1, m + 1):
        places.append(t % n)
        t //= n
    held = list(range(m, m + s))
    for number, option in enumerate(option for option in range(m) if v >> option & 1):
        place = number if number < s else places[number - s]
        if place < s:
            held[place] = option
    held = sorted(held)
    free = [place for place in range(m + s) if place not in held]
    named = [held[i] for i in among] + [free[i] for i in others]
    return 0, sum(1 << place for place in named if place < m)


AT_ONCE = {
    **dict.fromkeys(("binary", "grr", "l_grr"), grr),
    **dict.fromkeys(("sue", "oue", "l_osue"), unary),
    **dict.fromkeys(("local_hash", "fast_local_hash", "loloha"), local_hash),
    **dict.fromkeys(("pem", "tree_hist"), prefix),
    **dict.fromkeys(("sampled_options", "sampled_pair"), sampled),
    "padded_subset": padded_subset,
    **{
        each.__name__: each
        for each in (coin, subset, cms, hcms, dbitflip, rappor, google_rappor, hadamard, general_hadamard, pgr, window)
    },
}


def randomize(metric, v, chance):
    """Return the row and content of a report of a position, in one step."""
    return AT_ONCE[metric["mechanism"]](metric, v, chance)


def bucket(metric, r, v):
    return min((v - r * metric["constants"]["stride"]) % domain(metric), metric["layout"]["width"])


def rounded(p, point):
    """Round a number to the low end (0) or the high end (1) of its range."""
    return int(p > point)


def flipped(metric, r, v, z):
    m = bucket(metric, r, v)
    return z ^ 1 << m if m < metric["layout"]["width"] else z


def response_key(metric, r, v):
    if metric["mechanism"] == "loloha":
        return h(metric, r, v)
    return bucket(metric, r, v) if metric["mechanism"] == "dbitflip" else v


def respond(metric, r, v, chance):
    """Return the content of a permanent response."""
    name, width = metric["mechanism"], metric["layout"]["width"]
    if name in ("l_grr", "loloha"):
        return shifted(response_key(metric, r, v), width, p_of(metric, "keep_permanent"), chance)
    if name == "l_osue":
        return replaced(run(chance, p_of(metric, "other_permanent"), width), v, chance.event(Fraction(1, 2)))
    if name == "dbitflip":
        return flipped(metric, r, v, run(chance, p_of(metric, "flip"), width))
    return filter_of(metric, r, v) ^ run(chance, p_of(metric, "flip_permanent"), width)


def again(metric, response, chance):
    """Return the content of a report of a permanent response."""
    name, width = metric["mechanism"], metric["layout"]["width"]
    if name in ("l_grr", "loloha"):
        return shifted(response, width, p_of(metric, "keep_again"), chance)
    if name in ("l_osue", "rappor"):
        return response ^ run(chance, p_of(metric, "flip_again"), width)
    if name == "dbitflip":
        return response
    y = sum(chance.event(p_of(metric, "other_again")) << i for i in range(width))
    z = sum(chance.event(p_of(metric, "one_again")) << i for i in range(width))
    return y & ~response | z & response


def row_of(place, rows, chance):
    """Return the device's row in a metric of so many rows, and its place from now on."""
    x, y = place
    finer = lcm(y, rows) // y
    if finer > 1:
        x, y = x * finer + chance.below(finer), y * finer
    return x * rows // y, (x, y)


# Batches


def body_of(sheet, reports):
    """Write the body of reports, each a metric, period, segment and payload."""
    groups = {}
    for id_, named, where, content in reports:
        metric = sheet["metrics"][id_]
        groups.setdefault((id_, metric["version"], metric["fingerprint"], named, where), []).append(content)
    names = ("metric", "version", "fingerprint", "period", "segment")
    document = {
        "format": 1,
        "app": sheet["app"],
        "groups": [
            {
                **dict(zip(names, key, strict=True)),
                "count": len(payloads),
                "payloads": b64encode(b"".join(sorted(payloads))).decode(),
            }
            for key, payloads in sorted(groups.items())
        ],
    }
    return json.dumps(document, separators=(",", ":")).encode()


# The device


def counts_in(metric, moment):
    """Return the month in which the period of a moment counts: that of its last day."""
    day = moment.astimezone(UTC)
    return f"{day + timedelta(days=6 - day.weekday() if metric['period'] == 'week' else 0):%Y-%m}"


def stored_under(secret, metric, key):
    return hmac.digest(secret, f"{metric['fingerprint']} {key}".encode(), "sha256")[:16]


def within(amount, bound):
    return bound is None or amount <= bound


class Ledger:
    """What was spent, by fingerprint."""

    def __init__(self, budget):
        self.budget = budget
        self.last, self.reports, self.ever, self.spends = {}, {}, {}, {}

    def spent_in(self, month):
        return sum(cost for (_, each), cost in self.spends.items() if each == month)

    def begun(self, metric, now):
        """Tell whether the period, or a later one, has its reports."""
        tag, named = metric["fingerprint"], period(now, metric["period"])
        last = self.last.get(tag, "")
        return named < last or (named == last and self.reports[tag] >= metric["allowance"]["per_period"])

    def note(self, metric, now, amount):
        tag, named = metric["fingerprint"], period(now, metric["period"])
        self.reports[tag] = 1 + (self.reports[tag] if self.last.get(tag) == named else 0)
        self.last[tag] = named
        self.ever[tag] = self.ever.get(tag, 0) + amount

    def spend(self, metric, now):
        """Pay for a report; return whether the budget has room."""
        tag, allowance = metric["fingerprint"], metric["allowance"]
        cost, own = allowance["cost"], self.ever.get(tag, 0)
        if not (
            within(self.spent_in(counts_in(metric, now)) + cost, self.budget["per_month"])
            and within(own + cost, allowance["lifetime"])
            and within(sum(self.ever.values()) + cost, self.budget["lifetime"])
        ):
            return False
        self.note(metric, now, cost)
        at = tag, counts_in(metric, now)
        self.spends[at] = self.spends.get(at, 0) + cost
        return True

    def reserve(self, metric, now):
        """Pay for the report of a kept response, likewise."""
        tag, allowance = metric["fingerprint"], metric["allowance"]
        total = allowance["month"] if allowance["lifetime"] is None else allowance["lifetime"]
        due, at = max(0, total - self.ever.get(tag, 0)), (tag, counts_in(metric, now))
        more = max(0, allowance["month"] - self.spends.get(at, 0))
        if not (
            within(self.spent_in(at[1]) + more, self.budget["per_month"])
            and within(sum(self.ever.values()) + due, self.budget["lifetime"])
        ):
            return False
        self.note(metric, now, due)
        self.spends[at] = self.spends.get(at, 0) + more
        return True


class Device:
    """A device that keeps in memory what another has in a file."""

    def __init__(self, sheet, own, chance=None):
        assert sheet["format"] == 1
        self.sheet, self.own, self.chance = sheet, own, chance or System()
        self.ledger, self.secret, self.place = Ledger(sheet["budget"]), os.urandom(32), (0, 1)
        self.responses, self.stand_ins, self.points, self.last, self.uses = {}, {}, {}, {}, {}
        self.waiting = []

    def record(self, id_, answer, now=None):
        """Report an answer; return what became of it."""
        metric, now = self.sheet["metrics"][id_], now or datetime.now(UTC)
        if metric.get("off"):
            return "off"
        sampled = self.chance.event(Fraction(metric["sample"]))
        if self.ledger.begun(metric, now):
            return "this_period"
        if not sampled:
            self.ledger.note(metric, now, 0)
            return "not_sampled"
        permanent = metric["epsilon_permanent"] is not None
        if not (self.ledger.reserve if permanent else self.ledger.spend)(metric, now):
            return "budget"
        v = position(metric, answer)
        if permanent:
            row, content = self._again(id_, metric, v, now)
        else:
            row, content = randomize(metric, self._stand_in(metric) if v is None else v, self.chance)
        named = period(now, metric["period"])
        self.waiting.append((id_, named, segment(metric, self.own), payload(metric["layout"], row, content)))
        return "reported"

    def _stand_in(self, metric):
        if metric["type"] == "number":
            return position(metric, None)
        if metric["other"] is None:
            return self.chance.below(domain(metric))
        return position(metric, [metric["other"]] if metric["type"] == "set" else metric["other"])

    def _again(self, id_, metric, v, now):
        row, self.place = row_of(self.place, metric["layout"]["rows"], self.chance)
        if id_ not in self.stand_ins:
            self.stand_ins[id_] = self._stand_in(metric)
        v = self.stand_ins[id_] if v is None else v
        if metric["rounded"]:
            if id_ not in self.points:
                self.points[id_] = self.chance.below(metric["steps"])
            v = rounded(v, self.points[id_])
        own, allowance = self.responses.setdefault(id_, {}), metric["allowance"]
        key = stored_under(self.secret, metric, response_key(metric, row, v))
        uses = self.uses.setdefault((id_, counts_in(metric, now)), [])
        ever = allowance["answers_ever"]
        spent = key not in own and ever is not None and len(own) >= ever
        if own and (spent or (key not in uses and len(uses) >= allowance["answers"])):
            key = uses[-1] if uses else self.last[id_]
        if key not in own:
            own[key] = respond(metric, row, v, self.chance)
        self.last[id_] = key
        uses[:] = [*(each for each in uses if each != key), key]
        return row, again(metric, own[key], self.chance)


def upload(url, key, body, batch=None, *, compressed=True):
    """Send a body once; return the status and the answer."""
    headers = {
        "Authorization": f"Bearer {key}",
        "Content-Type": "application/json",
        "Idempotency-Key": batch or str(uuid.UUID(bytes=os.urandom(16), version=4)),
        "User-Agent": "foreign",
    }
    if compressed:
        body, headers["Content-Encoding"] = gzip.compress(body, mtime=0), "gzip"
    try:
        with urllib.request.urlopen(urllib.request.Request(f"{url}/v1/reports", body, headers), timeout=300) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)
