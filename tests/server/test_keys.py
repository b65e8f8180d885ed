"""Keys: made, listed and revoked by a command; kept as hashes; good or refused everywhere within seconds."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256

import pytest
import redis

from deniable.commands.entry import main
from deniable.errors import ConfigurationError, ParameterError
from deniable.transport.dsn import Dsn
from deniable_aggregator.store import Store
from deniable_aggregator.store.outage import Outage
from deniable_aggregator.store.uploads import registries
from deniable_server.access.key_ring import FRESH_SECONDS, STALE_SECONDS, Ring
from deniable_server.access.keys import Key, KeyStore
from deniable_server.access.roles import ROLES, draw, why_unknown


def today():
    """Return the day in UTC: the last one that a key was used on."""
    return str(datetime.now(UTC).date())


@pytest.fixture
def command(store_url, real_redis, capsys, monkeypatch, registry_file):  # noqa: ARG001 - emptied for each test
    """Run ``deniable keys``; return its exit status and what it printed, in the two ways."""
    monkeypatch.setenv("DENIABLE_REDIS_URL", store_url)
    monkeypatch.setenv("DENIABLE_REGISTRY", str(registry_file))

    def run(*arguments, app="shop"):
        status = main(["keys", *(["--app", app] if app else []), *arguments])
        return status, *capsys.readouterr()

    return run


@pytest.fixture
def make(command):
    """Make a key; return it and its id."""

    def run(role, name=""):
        status, text, output = command("create", "--role", role, "--name", name)
        assert status == 0
        return text.strip(), re.search(r"id ([0-9a-f]{16})", output)[1]

    return run


@pytest.mark.parametrize("role", ROLES)
def test_an_app_takes_no_key_but_an_ingest_key(role):
    """The SDK knows keys of other roles by how they begin, and refuses them."""
    dsn = f"https://{draw(role)}@t.example/shop"
    if role == "ingest":
        assert Dsn.parse(dsn).app == "shop"
        return
    with pytest.raises(ConfigurationError, match=f"{role} key"):
        Dsn.parse(dsn)


@pytest.mark.parametrize(
    ("text", "role", "words"),
    [
        ("pk_a", "read", "begins with rk_; the one given begins with pk_, as ingest keys do"),
        ("rk_a", "ingest", "begins with pk_; the one given begins with rk_, as read keys do"),
        ("rk_a", "admin", "begins with ak_; the one given begins with rk_, as read keys do"),
        ("rk_a", "read", "the read key is not known here"),
        ("ak_a", "read", "the read key is not known here"),
        ("mine", "ingest", "the ingest key is not known here"),
    ],
)
def test_why_a_key_is_unknown(text, role, words):
    """A key of another role shows itself by how it begins, unless it would open as much."""
    assert words in why_unknown(text, role)


class Clock:
    """A clock that is set by hand."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


class Flaky:
    """A store that is away when told so."""

    def __init__(self, client):
        self._client = client
        self.away = False

    def __getattr__(self, name):
        if self.away:
            raise redis.ConnectionError("away")
        return getattr(self._client, name)


def everything(client):
    """Read every byte of a store, names and values."""
    return b"".join(key + (client.dump(key) or b"") for key in client.scan_iter())


def upload(served, key):
    batch = {"format": 1, "app": "shop", "groups": [served.group("ui.theme", [0])]}
    return served.post(batch, Authorization=f"Bearer {key}")


def revoked(served, id_, key):
    """Revoke over HTTP."""
    return served.http.delete(f"/api/v1/keys/{id_}", headers={"Authorization": f"Bearer {key}"})


# Making and showing


def test_only_hashes_are_kept(command, make, real_redis):
    """A key is printed once; neither the store nor the list has more of it than its first characters and its hash."""
    for role, prefix in (("ingest", "pk_"), ("read", "rk_"), ("admin", "ak_")):
        text, id_ = make(role, f"for {role}")
        assert re.fullmatch(rf"{prefix}[\w-]{{32}}", text)
        assert id_ == sha256(text.encode()).hexdigest()[:16]
        secret = text[7:].encode()
        assert secret not in everything(real_redis)
        _, listed, _ = command("list")
        assert secret.decode() not in listed
        assert text[:7] in listed


def test_keys_are_listed_with_their_days(command, make, served):
    """A list has role, name, start, and the days on which a key was made and last used, and nothing finer."""
    text, id_ = make("ingest", "Android 4.2")
    other, unused = make("read")
    assert upload(served, text).status_code == 202
    listed = json.loads(command("list", "--json")[1])
    assert {row.pop("id"): row for row in listed} == {
        id_: {
            "role": "ingest",
            "name": "Android 4.2",
            "start": text[:7],
            "epsilon": None,
            "created": today(),
            "used": today(),
        },
        unused: {"role": "read", "name": "", "start": other[:7], "epsilon": None, "created": today(), "used": None},
    }
    table = [line.split() for line in command("list")[1].splitlines()]
    assert [unused, "read", other[:7], today(), "never", "-"] in table
    assert [id_, "ingest", text[:7], today(), today(), "-", "Android", "4.2"] in table
    assert len(table) == 3


def test_a_key_is_made_with_a_budget_of_its_own(command, served):
    """It is listed with the key, by the command and over HTTP, and said when the key is made."""
    status, text, output = command("create", "--role", "read", "--epsilon", "0.25")
    assert (status, "at most 0.25 nats of each month" in output) == (0, True)
    admin = command("create", "--role", "admin", "--epsilon", "0")[1].strip()
    assert sorted(row["epsilon"] for row in json.loads(command("list", "--json")[1])) == [0, 0.25]
    assert sorted(row["epsilon"] for row in served.get("/api/v1/keys", admin).get_json()["keys"]) == [0, 0.25]
    assert [line.split()[-1] for line in command("list")[1].splitlines()[1:]] in (["0.25", "0"], ["0", "0.25"])
    assert served.get("/api/v1/budgets", text.strip()).get_json()["own"] == 0.25


@pytest.mark.parametrize(
    ("role", "epsilon", "words"),
    [
        ("ingest", "0.1", "epsilon = 0.1: leave it out; an ingest key asks nothing"),
        ("read", "-0.1", "epsilon = -0.1: write a number of nats from 0 to 20"),
        ("read", "nan", "epsilon = nan: write a number of nats from 0 to 20"),
        ("read", "0.51", "--epsilon: write at most 0.5, what [analysts] of shop gives each key; this is 0.51"),
    ],
)
def test_a_budget_that_no_key_can_have_is_refused(command, real_redis, role, epsilon, words):
    """A budget is of a key that may ask, and no more than the registry gives each key."""
    status, _, output = command("create", "--role", role, f"--epsilon={epsilon}")
    assert (status, words in output) == (2, True), output
    assert not real_redis.exists("{shop}:keys")


def test_a_day_of_use_is_written_once(make, served, real_redis):
    """A process writes a key's day of use once, not with each request."""
    text, id_ = make("ingest")
    assert upload(served, text).status_code == 202
    assert real_redis.hget("{shop}:keys:used", id_) == today().encode()
    real_redis.delete("{shop}:keys:used")
    assert upload(served, text).status_code == 202
    assert not real_redis.exists("{shop}:keys:used")


def test_a_key_is_for_an_app_that_is_declared(command, registry_file, monkeypatch):
    """A mistyped app gets no key by accident. A registry with a fault keeps nobody from revoking one."""
    assert command("create", "--role", "read", app=None)[0] == 0
    status, _, output = command("create", "--role", "read", app="shpo")
    assert (status, "did you mean 'shop'?" in output) == (2, True)
    assert command("create", "--role", "read", "--undeclared", app="shpo")[0] == 0
    registry_file.write_text(registry_file.read_text("utf-8").replace("\ntype =", "\ntyp =", 1), "utf-8")
    status, listed, output = command("list", app=None)
    assert (status, "shop" in output or "read" in listed, "deniable registry lint" in output) == (0, True, True)
    assert command("revoke", "--yes", json.loads(command("list", "--json")[1])[0]["id"])[0] == 0
    monkeypatch.delenv("DENIABLE_REGISTRY")
    assert command("create", "--role", "read")[0] == 2
    assert command("list", app=None)[0] == 2


def test_a_key_of_an_app_that_no_running_server_has(command, registry_file, tmp_path, monkeypatch, real_redis):
    """Servers that serve other apps answer 401 to it until they are started anew; before the first start nothing is said."""
    blog = tmp_path / "blog.toml"
    blog.write_text(registry_file.read_text("utf-8").replace('app = "shop"', 'app = "blog"'), "utf-8")
    monkeypatch.setenv("DENIABLE_REGISTRY", os.pathsep.join([str(registry_file), str(blog)]))
    assert "warning" not in command("create", "--role", "ingest", app="blog")[2]
    registries.say(Store(real_redis, "shop"), registries.Loaded("server", "f" * 64, "web-1:7"))
    assert "servers run, but serve shop only: restart them" in command("create", "--role", "ingest", app="blog")[2]
    registries.say(Store(real_redis, "blog"), registries.Loaded("server", "f" * 64, "web-1:7"))
    assert "warning" not in command("create", "--role", "ingest", app="blog")[2]


def test_a_store_that_is_away_is_said(command, monkeypatch):
    """Without a store the command fails in one line, which has no address or password of it."""
    monkeypatch.setenv("DENIABLE_REDIS_URL", "redis://:hunter2@127.0.0.1:1/0")
    status, _, output = command("list")
    assert (status, output.splitlines()[0]) == (3, "the store cannot be used: it does not answer")
    assert "hunter2" not in output
    monkeypatch.setenv("DENIABLE_REDIS_URL", "http://:hunter2@127.0.0.1:1/0")
    status, _, output = command("list")
    assert status == 2
    assert "hunter2" not in output
    monkeypatch.delenv("DENIABLE_REDIS_URL")
    assert command("list")[0] == 2


@pytest.mark.parametrize(("role", "name"), [("write", ""), ("read", "x" * 101), ("read", "two\nlines")])
def test_a_key_without_a_role_or_with_a_bad_name_is_refused(real_redis, role, name):
    """A role is one of three; a name is short and printable."""
    with pytest.raises(ParameterError):
        KeyStore(Store(real_redis, "shop")).create(role, name)
    assert not real_redis.keys()


# Roles


def test_a_key_does_what_its_role_may(make, served):
    """An ingest key sends and cannot read, a read key reads and cannot send, an admin key reads and looks after keys."""
    sends, reads, manages = (make(role)[0] for role in ("ingest", "read", "admin"))
    assert [upload(served, key).status_code for key in (sends, reads, manages)] == [202, 401, 401]
    assert [served.get("/api/v1/metrics", key).status_code for key in (sends, reads, manages)] == [401, 200, 200]
    assert [served.get("/api/v1/keys", key).status_code for key in (sends, reads, manages)] == [403, 403, 200]
    assert [revoked(served, "0" * 16, key).status_code for key in (sends, reads, manages)] == [403, 403, 404]


def test_keys_of_the_environment_go_on_working(make, served, settings):
    """Keys of the environment and of the store open side by side."""
    text, _ = make("read")
    assert served.get("/api/v1/metrics", text).status_code == 200
    assert served.get("/api/v1/metrics").status_code == 200
    assert upload(served, settings.ingest_keys.partition(":")[2]).status_code == 202


@pytest.mark.parametrize("role", ["ingest", "read", "admin"])
def test_a_key_of_an_app_that_is_not_served_yet_is_told_from_an_unknown_one(command, served, real_redis, role):
    """Devices of an app that a running server has not read keep their reports: 503 with the app's name, and not 401."""
    _, text, output = command("create", "--role", role, "--undeclared", app="blog")
    text, id_ = text.strip(), re.search(r"id ([0-9a-f]{16})", output)[1]
    ask = partial(upload, served, text) if role == "ingest" else partial(served.get, "/api/v1/metrics", text)
    other = partial(served.get, "/api/v1/metrics", text) if role == "ingest" else partial(upload, served, text)
    answer = ask()
    assert (answer.status_code, answer.get_json()["code"], answer.headers["Retry-After"]) == (503, "app_not_served", "60")
    assert "does not serve blog yet" in answer.get_json()["detail"]
    assert other().status_code == 401  # a key for something else says nothing
    assert real_redis.hgetall("{deniable}:keys:apps") == {id_.encode(): b"blog"}
    assert command("revoke", id_, "--yes", app="blog")[0] == 0
    assert ask().status_code == 401
    assert real_redis.hgetall("{deniable}:keys:apps") == {}


def test_a_wrong_app_of_a_key_opens_nothing(command, served, real_redis):
    """The table of all apps opens nothing by itself: an id without its key there is an unknown key."""
    text = command("create", "--role", "read", "--undeclared", app="blog")[1].strip()
    real_redis.delete("{blog}:keys")
    assert served.get("/api/v1/metrics", text).status_code == 401
    real_redis.hset("{deniable}:keys:apps", mapping=dict.fromkeys(real_redis.hkeys("{deniable}:keys:apps"), b"\xff{"))
    assert served.get("/api/v1/metrics", text).status_code == 401


def test_what_is_no_key_keeps_nobody_out(make, served, command, real_redis):
    """A record that somebody wrote by hand opens nothing, and the others go on working."""
    text, _ = make("read")
    for i, written in enumerate(["y", "[]", "{}", '{"role": "all"}', b"\xff"]):
        real_redis.hset("{shop}:keys", str(i), written)
    assert served.get("/api/v1/metrics", text).status_code == 200
    assert len(command("list")[1].splitlines()) == 2


# Over HTTP


def test_an_admin_sees_what_the_command_lists(command, make, served):
    """Keys are listed over HTTP as by the command, and nothing in the answer opens anything."""
    texts = [make(role, f"for {role}")[0] for role in ("ingest", "read", "admin")]
    assert upload(served, texts[0]).status_code == 202
    answer = served.get("/api/v1/keys", texts[2])
    assert answer.get_json() == {"app": "shop", "keys": json.loads(command("list", "--json")[1])}
    assert {row["role"]: row["used"] for row in answer.get_json()["keys"]} == {
        "ingest": today(),
        "read": None,
        "admin": today(),
    }
    for text in texts:
        assert text[7:] not in answer.get_data(as_text=True)
        assert sha256(text.encode()).hexdigest() not in answer.get_data(as_text=True)


def test_an_admin_revokes_a_key_everywhere(make, served, caplog):
    """A key that an admin revokes over HTTP is refused within two seconds by every process, and once revoked it is not there."""
    others = [served, served.restarted()]
    clocks = [Clock(), Clock()]
    for item, clock in zip(others, clocks, strict=True):
        item.service.ring._clock = clock
    (text, id_), (admin, own) = make("read"), make("admin")
    assert [item.get("/api/v1/metrics", text).status_code for item in others] == [200, 200]
    answer = revoked(served, id_, admin)
    assert (answer.status_code, answer.data) == (204, b"")
    assert f"key {id_} of shop was revoked" in caplog.text
    assert admin not in caplog.text
    for clock in clocks:
        clock.now += FRESH_SECONDS
    assert [item.get("/api/v1/metrics", text).status_code for item in others] == [401, 401]
    again = revoked(others[1], id_, admin)
    assert (again.status_code, again.get_json()["code"]) == (404, "no_such_key")
    assert revoked(served, own, admin).status_code == 204  # an admin may throw away the own key
    for clock in clocks:
        clock.now += FRESH_SECONDS
    assert served.get("/api/v1/keys", admin).status_code == 401
    others[1].store._client.close()


def test_an_admin_looks_after_one_app(command, make, served):
    """An admin neither sees nor revokes keys of another app, nor those of the environment."""
    admin, _ = make("admin")
    output = command("create", "--role", "admin", "--undeclared", app="blog")[2]
    other = re.search(r"id ([0-9a-f]{16})", output)[1]
    assert [row["role"] for row in served.get("/api/v1/keys", admin).get_json()["keys"]] == ["admin"]
    arguments = next(key for (key,) in served.service.ring._fixed.values() if key.role == "ingest")
    for id_ in (other, arguments.id, "*", "0" * 15, f"{other} "):
        assert revoked(served, id_, admin).status_code == 404
    assert len(json.loads(command("list", "--json", app="blog")[1])) == 1


def test_no_session_revokes(make, served):
    """What a browser sends by itself, the dashboard's cookie, opens nothing here: other pages cannot have keys revoked."""
    admin, id_ = make("admin")
    form = served.http.get("/login").get_data(as_text=True)
    token = re.search(r'name="token" value="([^"]+)"', form)[1]
    assert served.http.post("/login", data={"token": token, "key": admin}).status_code == 303
    assert served.http.get("/").status_code == 200
    assert served.http.get("/api/v1/keys").status_code == 401
    assert served.http.delete(f"/api/v1/keys/{id_}").status_code == 401


# Revoking


def test_a_revoked_key_is_refused_within_seconds_by_all(command, make, served):
    """Each process goes by what it has read for two seconds and no longer; a new key is good at once."""
    others = [served, served.restarted()]
    clocks = [Clock(), Clock()]
    for item, clock in zip(others, clocks, strict=True):
        item.service.ring._clock = clock
    text, id_ = make("read")
    assert [item.get("/api/v1/metrics", text).status_code for item in others] == [200, 200]
    new, _ = make("read")  # no time passes
    assert [item.get("/api/v1/metrics", new).status_code for item in others] == [200, 200]
    assert command("revoke", id_)[0] == 0
    for clock in clocks:
        clock.now += FRESH_SECONDS
    assert [item.get("/api/v1/metrics", text).status_code for item in others] == [401, 401]
    assert command("revoke", id_)[0] == 1
    assert command("revoke", "*")[0] == 1
    others[1].store._client.close()


def test_the_last_key_of_a_role_is_not_revoked_by_accident(command, make):
    """The command says what would stop, and does nothing without --yes; with another key of the role it asks nothing."""
    for role, stops in (("ingest", "its devices stop sending"), ("read", "nobody opens"), ("admin", "revokes keys")):
        _, first = make(role)
        status, _, output = command("revoke", first)
        assert (status, stops in output, "--yes" in output, f"create --app shop --role {role}" in output) == (2, True, True, True)
        _, second = make(role)
        assert command("revoke", first)[0] == 0
        assert command("revoke", second)[0] == 2
        assert command("revoke", "--yes", second)[0] == 0


def test_a_session_ends_with_its_key(command, make, served):
    """Whoever signed in to the dashboard with a key that is revoked is asked for another one."""
    served.service.ring._clock = clock = Clock()
    text, id_ = make("read")
    form = served.http.get("/login").get_data(as_text=True)
    token = re.search(r'name="token" value="([^"]+)"', form)[1]
    assert served.http.post("/login", data={"token": token, "key": text}).status_code == 303
    assert served.http.get("/").status_code == 200
    command("revoke", "--yes", id_)
    clock.now += FRESH_SECONDS
    assert served.http.get("/").status_code == 303


# The store away


@pytest.fixture
def ring(real_redis):
    """Give a ring, its store and its clock."""
    store, clock = Flaky(real_redis), Clock()
    return Ring([Store(store, "shop")], clock=clock, outage=Outage()), store, clock


def test_known_keys_outlive_a_pause_of_the_store_for_a_while(ring, real_redis, caplog):
    """While the store is away, known keys stay good for five minutes; then nothing is said of any key. One line is logged."""
    ring, store, clock = ring
    text, key = KeyStore(Store(real_redis, "shop")).create("read", "")
    assert ring.find(text, "read", anew=True).id == key.id
    store.away = True
    for _ in range(10):
        clock.now += (STALE_SECONDS - 1) / 10
        assert ring.find(text, "read").id == key.id
    assert ring.holds("shop", key.id, "read")
    assert len(caplog.messages) == 1
    clock.now += 1
    with pytest.raises(redis.RedisError):
        ring.find(text, "read")
    with pytest.raises(redis.RedisError):
        ring.holds("shop", key.id, "read")
    store.away = False
    assert ring.find(text, "read").id == key.id


def test_an_unknown_key_is_not_called_so_while_nobody_can_tell(ring):
    """With the store away a key that is not known may be new: the answer is no refusal, after which a device would give up."""
    ring, store, _ = ring
    assert ring.find("pk_made_elsewhere", "ingest", anew=True) is None
    store.away = True
    with pytest.raises(redis.RedisError):
        ring.find("pk_made_elsewhere", "ingest", anew=True)


def test_a_device_with_a_new_key_is_told_to_come_back(served, settings):
    """A server whose store is away answers 503 to a key that it does not know."""
    away = type(served)(replace(settings, redis_url="redis://127.0.0.1:1"))
    answer = upload(away, "pk_made_a_moment_ago")
    assert (answer.status_code, answer.get_json()["code"]) == (503, "store_unavailable")


@pytest.fixture
def commands(monkeypatch):
    """Note whatever is sent to the store."""
    sent, send = [], redis.connection.AbstractConnection.send_packed_command

    def note(self, command, **options):
        sent.append(command)
        return send(self, command, **options)

    monkeypatch.setattr(redis.connection.AbstractConnection, "send_packed_command", note)
    return sent


def test_a_key_is_read_now_and_then(ring, real_redis, commands):
    """However many requests come with a key, the store is asked for it once in two seconds."""
    ring, _, clock = ring
    text, key = KeyStore(Store(real_redis, "shop")).create("read", "")
    assert ring.find(text, "read") is None  # this process has not seen it
    assert ring.find(text, "read", anew=True).id == key.id
    commands.clear()
    for _ in range(50):
        assert ring.find(text, "read").id == key.id
        clock.now += 0.1
    assert len(commands) == 2
    ring.find("rk_anything", "read")
    assert len(commands) == 2


def test_an_unknown_key_takes_one_round_trip_for_all_apps(real_redis, commands):
    """However many apps and keys there are, the store is asked once, and no other key is read."""
    stores = [Store(real_redis, f"app-{number}") for number in range(50)]
    for store in stores[:5]:
        text, key = KeyStore(store).create("ingest", "")
    ring = Ring(stores, outage=Outage())
    commands.clear()
    assert ring.find("pk_made_elsewhere", "ingest", anew=True) is None
    assert len(commands) == 1
    assert ring.find(text, "ingest", anew=True) == key
    assert len(commands) == 2


def test_a_revoked_key_is_forgotten(ring, real_redis):
    """Two seconds after it was revoked a key is unknown, and takes no memory."""
    ring, _, clock = ring
    keys = KeyStore(Store(real_redis, "shop"))
    text, key = keys.create("read", "")
    assert ring.find(text, "read", anew=True)
    keys.revoke(key.id)
    assert ring.find(text, "read")
    clock.now += FRESH_SECONDS
    assert ring.find(text, "read") is None
    assert not ring._read


def test_a_key_is_compared_in_constant_time(monkeypatch):
    """A key is looked up by the first bits of its hash; the whole hash is compared in constant time."""
    from deniable_server.access import key_ring as module

    compared = []
    monkeypatch.setattr(module, "compare_digest", lambda one, other: compared.append(one) or one == other)
    keys = [Key("shop", "read", sha256(str(i).encode()).digest()) for i in range(5)]
    alike = Key("shop", "read", keys[0].digest[:8] + bytes(24))
    ring = Ring([], [alike, *keys], outage=Outage())
    ring._stores = {"shop": None}
    assert ring.find("0", "read") == keys[0]
    assert ring.find("4", "read") == keys[4]
    assert compared == [alike.digest, keys[0].digest, keys[4].digest]


def test_a_key_of_several_apps_is_asked_for_by_name(store_url, registry_file, tmp_path, capsys, monkeypatch):
    """Who has not said which app is told which there are."""
    other = tmp_path / "blog.toml"
    other.write_text(registry_file.read_text("utf-8").replace('app = "shop"', 'app = "blog"'), "utf-8")
    monkeypatch.setenv("DENIABLE_REGISTRY", f"{registry_file}:{other}")
    assert main(["keys", "--redis-url", store_url, "create", "--role", "read"]) == 2
    assert "give --app, one of blog, shop" in capsys.readouterr().err
    assert main(["erase", "--redis-url", store_url, "--metric", "ui.theme"]) == 2
    assert "erase takes one app at a time: give --app, one of blog, shop" in capsys.readouterr().err
