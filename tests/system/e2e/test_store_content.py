"""What users of the store never see: each calls all that a real server lets it call, on every key, itself and from scripts."""

from __future__ import annotations

import random
import re
from contextlib import ExitStack, suppress
from itertools import combinations, islice, product
from typing import NamedTuple

import pytest
import redis
from test_store_users import DEPLOY, Guarded, await_store, launch, server_binary, with_passwords

from deniable_aggregator.process.ports import free_port
from deniable_aggregator.store import schema

NAMES = {name: kind for name, kind in vars(schema).items() if isinstance(kind, schema.Key)}
TYPES = ("string", "hash", "list", "set", "zset", "stream")
BATCHES = {"REPORTS", "DEAD"}
SUMS = {"TALLY", "WEIGHTS", "SNAPSHOT", "STAGED"}
RELEASED = {"RELEASE", "RELEASES", "PUBLISHED"}
SENDERS = {
    "LATEST",
    "SEEN",
    "SEEN_HOUR",
    "SEEN_SECRET",
    "SOURCE",
    "SESSION",
    "SESSION_SECRET",
    "RATE_KEY",
    "RATE_BYTES",
    "RATE_SOURCE",
    "RATE_STRANGER",
}
NEVER = {
    "ingest": BATCHES | SUMS | RELEASED | {"TALLIES", "ANSWERS", "SPENT", "ALARMS", "LATEST", "REFUSED", "SESSION", "ARCHIVED"},
    "query": BATCHES | SUMS - {"TALLY"} | {"SEEN", "SEEN_SECRET", "ARCHIVED"},
    "server": BATCHES | SUMS - {"TALLY"} | {"ARCHIVED"},
    "worker": {"DEAD", "KEYS", "KEYS_USED", "ANSWERS", "SPENT"} | SENDERS,
    "operator": {"REPORTS", "TALLIES", "ANSWERS", "SPENT", "ALARMS"} | SUMS | RELEASED - {"PUBLISHED"} | SENDERS,
    "cluster": set(NAMES),
    "probe": set(NAMES),
}
"""By user, what docs/how-to/operate/store-users.md says that it never sees: the content of these kinds of keys."""
KEEPS = ("ingest", "query", "server")
"""Users that never remove a batch, but for the one way that docs/how-to/operate/store-users.md names."""
WORDS = {
    "group": ["agg"],
    "consumer": ["me"],
    "id": ["0", "*", ">", "1-1"],
    "start": ["-", "0"],
    "end": ["+", "-1"],
    "stop": ["-1"],
}
WORDS |= {"encoding": ["u8"], "offset": ["0"], "milliseconds": ["1"], "ms": ["1"], "section": ["everything"], "index": ["0"]}
WORDS |= {
    "numreplicas": ["0"],
    "timeout": ["1"],
    "min-idle-time": ["0"],
    "seconds": ["100"],
    "threshold": ["0"],
    "key": ["{key}"],
}


class Effort(NamedTuple):
    """How much is tried."""

    ways: int
    """To write one command, for each key. They are drawn if there are more."""
    scripted: int
    """Of them by scripts, which are checked as the user is, so that no option alone can be what they get by."""
    step: int
    """Of pairs of keys, scripts try every so manieth. It divides no number of keys, so each key is in both places."""


EFFORTS = [Effort(150, 10, 7), pytest.param(Effort(600, 600, 1), marks=[pytest.mark.campaign, pytest.mark.nightly])]


def mark(name):
    """Return what only keys of a kind contain."""
    return b"<mark%02d>" % list(NAMES).index(name)


def places():
    """Return each kind of key in an app for each type of value, so that no type is a loophole."""
    for name, kind in NAMES.items():
        for type_ in TYPES:
            fill = ["x"] * kind.name.count("*")
            yield name, type_, kind.of(*([type_] if "{app}" in kind.name else []), *fill)


SHOPS = [
    ("alone", "server"),
    ("cluster", "server"),
    *(
        pytest.param((place, "wheel"), marks=[pytest.mark.other_store, pytest.mark.campaign, pytest.mark.nightly])
        for place in ("alone", "cluster")
    ),
]


@pytest.fixture(scope="module", params=SHOPS, ids="-".join)
def shop(request, tmp_path_factory):
    """Start a server with the users shipped, as one or as a node of a cluster has them, and one that may do all."""
    folder = tmp_path_factory.mktemp("marked")
    place, binary = request.param[0], server_binary(request.param[1])
    path, passwords = with_passwords(folder, *(["--store", "a:1,b:2"] if place == "cluster" else []))
    path.write_text(path.read_text("utf-8") + "user watch on nopass ~* &* +@all\n", "utf-8")
    port = free_port()
    server = Guarded(f"127.0.0.1:{port}", passwords | {"watch": "x"})
    with ExitStack() as undo:
        options = ["--port", str(port), "--bind", "127.0.0.1", "--aclfile", path, "--rdbcompression", "no"]
        await_store(launch(undo, folder, binary, *options), folder, server.url("watch"))
        yield server


def fill(watch):
    """Write each kind of key anew, with its mark as a value, and batches that wait, some of them in hand."""
    pipeline = watch.pipeline(transaction=False)
    pipeline.flushall()
    for name, type_, key in places():
        if type_ == "string":
            pipeline.set(key, mark(name))
        elif type_ == "hash":
            pipeline.hset(key, "name", mark(name))
        elif type_ == "list":
            pipeline.rpush(key, mark(name), mark(name))
        elif type_ == "set":
            pipeline.sadd(key, mark(name))
        elif type_ == "zset":
            pipeline.zadd(key, {mark(name): 1})
        else:
            pipeline.xgroup_create(key, "agg", "0", mkstream=True)
            pipeline.xadd(key, {"d": mark(name)}, id="1-1")
            pipeline.xadd(key, {"d": mark(name)}, id="1-2")
            pipeline.execute_command("XREADGROUP", "GROUP", "agg", "other", "COUNT", 1, "STREAMS", key, ">")
    pipeline.execute(raise_on_error=False)  # some kinds have no app, and so one key for all types


def pairs(reply):
    """Return a reply that lists names and values as a dict."""
    return reply if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2], strict=True))


def ways(argument, most):
    """Return the ways to write an argument of a command, as the server documents it: lists of words."""
    argument = {name.decode(): value for name, value in pairs(argument).items()}
    kind, name = argument["type"].decode(), argument["name"].decode()
    flags = {each.decode() for each in argument.get("flags", [])}
    if kind == "pure-token":
        forms = [[argument["token"].decode()]]
    elif kind == "oneof":
        forms = [way for each in argument["arguments"] for way in ways(each, most)]
    elif kind == "block":
        forms = spelled(argument["arguments"], most)
    elif kind == "key":
        forms = [["{key}"]]
    elif kind in ("integer", "double", "unix-time"):
        forms = [[word] for word in WORDS.get(name, ["0", "10"])]
    else:
        forms = [[word] for word in WORDS.get(name, ["name"])]
    if kind != "pure-token" and "token" in argument:
        forms = [[argument["token"].decode(), *way] for way in forms]
    return [*([[]] if "optional" in flags else []), *forms]


def spelled(arguments, most):
    """Return the ways to write some arguments after one another."""
    choices = [ways(argument, most) for argument in arguments]
    number = 1
    for options in choices:
        number *= len(options)
    chosen = product(*choices) if number <= most else together(choices, most)
    return [[word for way in call for word in way] for call in chosen]


def together(choices, most):
    """Yield so many choices, the first ones such that soon each option was there beside each of another argument."""
    chance, places = random.Random(0), [[(place, at) for at in range(len(options))] for place, options in enumerate(choices)]
    missing = {pair for one, other in combinations(places, 2) for pair in product(one, other)}
    for _ in range(most):
        pair = dict(min(missing, default=()))
        tries = [[(place, pair.get(place, chance.randrange(len(each)))) for place, each in enumerate(places)] for _ in range(20)]
        best = max(tries, key=lambda way: len(missing.intersection(combinations(way, 2))))
        missing.difference_update(combinations(best, 2))
        yield [choices[place][at] for place, at in best]


def ask(client, *command):
    """Return the answer of a server as it comes."""
    ((_, answer),) = answers(client, [command])
    return answer


def granted(watch, user):
    """Return the commands that the server lets a user call with some key, in lower case, with ``|`` before a subcommand."""
    rights = {name.decode(): value for name, value in pairs(ask(watch, "ACL", "GETUSER", user)).items()}
    rules = [rights["commands"].decode()]
    rules += [pairs(each)[b"commands"].decode() for each in rights["selectors"]]
    commands = set()
    for rule in " ".join(rules).split():
        if rule.startswith("+@"):
            commands |= {each.decode() for each in ask(watch, "ACL", "CAT", *([] if rule == "+@all" else [rule[2:]]))}
        elif rule.startswith("+"):
            commands.add(rule[1:].lower())
    return sorted(commands)


def documented(watch, command):
    """Return a command and its subcommands with their documented arguments."""
    parent, _, part = command.partition("|")
    docs = pairs(ask(watch, "COMMAND", "DOCS", parent))
    documentation = {name.decode(): value for name, value in pairs(next(iter(docs.values()))).items()}
    subcommands = {name.decode(): pairs(value) for name, value in pairs(documentation.get("subcommands", [])).items()}
    if not subcommands:
        return {parent: documentation.get("arguments", [])}
    return {name: each.get(b"arguments", []) for name, each in subcommands.items() if not part or name == command}


def calls(watch, command, most, step=1, of=NAMES, first=()):
    """Yield all calls of a command: each way to write it, for each key and, if it takes two, each pair of one type.

    They have a key of certain kinds in them. Keys of some kinds come first: what is copied first, or renamed last, stays.
    """
    ordered = sorted(places(), key=lambda place: place[0] not in first)
    keys = {type_: [key for _, own, key in ordered if own == type_] for type_ in TYPES}
    looked_for = {key for name, _, key in places() if name in of}
    for name, arguments in documented(watch, command).items():
        for way in spelled(arguments, most):
            number = way.count("{key}")
            for own in keys.values():
                for chosen in islice(product(own, repeat=min(number, 2)), 0, None, step if number > 1 else 1):
                    if looked_for.isdisjoint(chosen) and number:
                        continue
                    filled = iter([*chosen, *chosen[-1:] * number])
                    yield [*name.split("|"), *(next(filled) if word == "{key}" else word for word in way)]
                if not number:
                    break


def answers(client, commands):
    """Yield a command and its answer, or what the server says against it, one after another."""
    connection = client.connection_pool.get_connection()
    commands = iter(commands)
    while chunk := list(islice(commands, 400)):
        connection.send_packed_command(connection.pack_commands(chunk))
        for command in chunk:
            try:
                answer = connection.read_response()
            except redis.ResponseError as error:
                answer = error
            yield command, answer
    client.connection_pool.release(connection)


def scripted(commands):
    """Yield commands as scripts call them: with no key said, and with the last one that has the form of one."""
    for command in commands:
        yield ["EVAL", "return redis.call(unpack(ARGV))", 0, *command]
        named = [word for word in command if word.startswith("{")][:1]
        if named:
            yield ["EVAL", "return redis.call(unpack(ARGV))", 1, *named, *command]


def strangers(watch):
    """Return the kinds whose content is in a key of another kind."""
    kinds = set()
    own = {key.encode(): mark(name) for name, _, key in places()}
    marks = {mark(name): name for name in NAMES}
    keys = list(watch.scan_iter(count=1000))
    pipeline = watch.pipeline(transaction=False)
    for key in keys:
        pipeline.dump(key)
    for key, content in zip(keys, pipeline.execute(), strict=True):
        held = set(re.findall(rb"<mark\d\d>", content or b""))
        kinds |= {marks[each] for each in held - {own.get(key)} if each in marks}
    return kinds


def batches(watch):
    """Count the batches that wait."""
    with suppress(redis.ResponseError):
        return watch.xlen(schema.REPORTS.of("stream"))
    return 0


@pytest.mark.parametrize("effort", EFFORTS, ids=["sampled", "at length"])
@pytest.mark.parametrize("user", NEVER)
def test_no_call_shows_what_a_user_never_sees(shop, user, effort):
    """No command with any option, on any key, called itself or by a script, answers with or moves what it never sees."""
    if user not in shop.passwords:
        pytest.skip("a user of clusters")
    seen, removed = set(), set()
    marks = {mark(name): name for name in NEVER[user]}
    with shop.client("watch") as watch, shop.client(user) as client:
        mine = [each for each in granted(watch, user) if each not in ("eval", "evalsha", "bgrewriteaof")]
        assert "ping" in mine
        for command in mine:
            for commands in (
                calls(watch, command, effort.ways, first=NEVER[user]),
                scripted(calls(watch, command, effort.scripted, effort.step, first=NAMES.keys() - NEVER[user])),
            ):
                fill(watch)
                for call, answer in answers(client, commands):
                    text = repr(answer).encode() if isinstance(answer, (list, dict, Exception)) else answer
                    for tag in re.findall(rb"<mark\d\d>", text if isinstance(text, bytes) else b""):
                        if tag in marks:
                            seen.add((command, marks[tag], " ".join(map(str, call))))
                if batches(watch) < 2:
                    removed.add(command)
                moved = strangers(watch) & NEVER[user]
                assert not moved, (command, moved)
    assert not seen, sorted(seen)[:20]
    if user in KEEPS:
        assert removed <= {"xadd"}


def test_the_search_finds_what_it_looks_for(shop):
    """It would see a batch by each command that tells one, with the option that does; by fewer ways, too."""
    tell = ("xinfo|stream", "xrange", "xread", "xautoclaim", "xclaim", "xreadgroup", "dump", "rename")
    with shop.client("watch") as watch:
        for command, most in product(tell, (EFFORTS[0].ways, EFFORTS[0].scripted)):
            fill(watch)
            output = repr([answer for _, answer in answers(watch, calls(watch, command, most, of=["REPORTS"]))]).encode()
            assert mark("REPORTS") in output or strangers(watch), command


def test_the_users_are_those_shipped(shop):
    """Each user of the file is looked at; `replica` and `backup` have a copy of all, and `default` is off."""
    shipped = set(re.findall(r"^user (\S+) on", (DEPLOY / "users.acl").read_text("utf-8"), re.MULTILINE))
    assert shipped - {"backup"} | {"cluster"} == set(NEVER)
    assert set(shop.passwords) - {"watch", "replica"} == shipped | ({"cluster"} & set(shop.passwords))
