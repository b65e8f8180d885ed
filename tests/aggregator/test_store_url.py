"""The URL of a store: whatever nothing reads is refused, with what is meant, and no password is repeated."""

from __future__ import annotations

import pytest

from deniable.commands.entry import main
from deniable.errors import ConfigurationError
from deniable_aggregator.store import connect

CA = "ssl_ca_certs=/ca.pem"


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("rediss://h/0?ssl_cacerts=x", r"nothing reads \?ssl_cacerts; is ssl_ca_certs meant\?"),
        ("redis://h/0?socket_timout=3", r"nothing reads \?socket_timout; is socket_timeout meant\?"),
        ("redis+cluster://h,g?decode_responses=true", r"nothing reads \?decode_responses$"),
        ("redis+sentinel://h/shop?sentinel_pasword=canary", r"nothing reads \?sentinel_pasword; is sentinel_password meant\?"),
        (f"redis://h/0?{CA}", r"redis:// does not read \?ssl_ca_certs: for TLS write rediss://, or leave it out"),
        (f"redis+cluster://h?{CA}", r"for TLS write rediss\+cluster://"),
        (f"unix:///run/redis.sock?{CA}", "leave it out"),
        ("redis://h/0?sentinel_password=canary", r"redis:// does not read \?sentinel_password: leave it out"),
        ("redis://h?db=2", "write the database behind the host: /0"),
        ("redis://h/0?socket_timeout=abc", r"\?socket_timeout = 'abc': write a number of seconds above 0"),
        ("redis://h/0?socket_timeout=", "write a number of seconds"),
        ("redis://h/0?socket_keepalive=maybe", "write yes or no"),
        ("redis://h/0?protocol=4", r"\?protocol = '4': write 2 or 3"),
        ("rediss://h/0?ssl_cert_reqs=some", "write none, optional or required"),
        ("redis+sentinel://h/shop?sentinel_password=", r"\?sentinel_password: write a password"),
        ("redis://h/0?socket_timeout=3&socket_timeout=4", r"\?socket_timeout stands there more than once"),
        ("redis://127.0.0.1:99999/0", "a port is a number from 1 to 65535"),
        ("redis+cluster://a:1,b:99999", "a port is a number from 1 to 65535"),
        ("redis://h/first", "ends with the number of a database"),
        ("redis+sentinel://h/shop/first", "ends with the number of a database"),
        ("redis://:can?ary@h/0", "in a password write %2F for /"),
        ("redis://:can/ary@h/0", "in a password write %2F for /"),
        ("http://h", r"write redis://, unix://, .* with TLS rediss://"),
    ],
)
def test_a_fault_of_a_url_is_named(url, words):
    with pytest.raises(ConfigurationError, match=words) as caught:
        connect(url)
    assert "canary" not in str(caught.value).replace("?", "").replace("/", "")


@pytest.mark.parametrize(
    "url",
    [
        "redis://h/2?socket_timeout=3&socket_connect_timeout=.5&socket_keepalive=no&protocol=2",
        f"rediss://u:p@h/0?{CA}&ssl_cert_reqs=none&ssl_check_hostname=no&ssl_certfile=c&ssl_keyfile=k&ssl_password=p&ssl_ca_path=d",
        "unix://u:p@/run/redis.sock?db=3&socket_timeout=3",
    ],
)
def test_each_option_that_is_read_makes_a_connection(url):
    """Nothing of the table is refused by the library of the store later."""
    connect(url).connection_pool.make_connection()


def test_options_reach_sentinels_and_clusters():
    """Sentinels have the password of their own."""
    watched = connect(f"rediss+sentinel://me:own@h/shop?sentinel_password=other&{CA}&ssl_check_hostname=no&socket_timeout=3")
    for pool in (watched.connection_pool, watched.connection_pool.sentinel_manager.sentinels[0].connection_pool):
        kwargs = pool.connection_kwargs
        assert (kwargs["ssl_ca_certs"], kwargs["ssl_check_hostname"], kwargs["socket_timeout"]) == ("/ca.pem", False, 3)
    assert pool.connection_kwargs["password"] == "other"
    assert connect("redis+cluster://h?socket_timeout=3")._options["socket_timeout"] == 3


@pytest.mark.parametrize(
    "command", [["doctor"], ["doctor", "--settings"], ["keys", "list", "--app", "shop"], ["worker", "--app", "shop"]]
)
def test_every_command_ends_with_2(command, capsys):
    """As for a mistyped variable."""
    status = main([*command, "--redis-url", "redis://h/0?socket_timout=3"])
    out, err = capsys.readouterr()
    assert status == 2
    assert "DENIABLE_REDIS_URL, --redis-url: nothing reads ?socket_timout; is socket_timeout meant?" in out + err
