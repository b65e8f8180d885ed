"""Draw a password for each user of the store, and a key for the numbers of the servers.

``python deploy/passwords.py deploy/users.acl --folder deploy/private --store store:6379`` writes ``users.acl`` for the store,
which has hashes only, and for each process an environment file that only its owner may read. No password is printed, unless
``--show`` asks for it instead: then the hashes go to stdout and the passwords to stderr, once, as ``user password``. The password
of the user ``probe`` has a file of its own, for ``ready.sh``: whether a server of the store is ready.

With ``--keep deploy/private`` the new files say what the ones in use say, also what an operator added to them, and have new
passwords; the key for the numbers of the servers stays. The first word is deploy/users.acl as shipped then too: a file in use
has passwords that would stay valid, so it is refused.

With ``--tls FILE`` the store speaks TLS; FILE is where each machine has its certificate, or that of its issuer.

With ``--store one:6379,two:6379,...`` the store is a cluster of these nodes. Its users get the rights that a cluster takes, and
there are two users more: ``replica``, for ``replica.conf`` of the nodes, and ``cluster``, for ``cluster/make.py``.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from hashlib import sha256
from pathlib import Path
from secrets import token_hex

SERVES = {"ingest": "ingest", "query": "query", "server": "all"}
"""What a server serves under each user that is one's."""
CLUSTER_RIGHTS = "+cluster|slots +command +asking +wait"
"""What each user of a store needs more on a cluster that promises ``replicated``."""
CLUSTER_USERS = """\
user replica on resetpass resetkeys resetchannels -@all +ping +psync +replconf
user cluster on resetpass resetkeys resetchannels -@all +ping +info +cluster|info +cluster|myid +cluster|nodes +cluster|meet \
+cluster|addslotsrange +cluster|replicate +cluster|forget
"""


def clustered(acl: str) -> str:
    """Return the users of a cluster."""
    return acl.replace(" +ping +select ", f" +ping {CLUSTER_RIGHTS} +select ") + CLUSTER_USERS


def draw(acl: str) -> tuple[str, dict[str, str]]:
    """Give each user who is on a password; return the users with its hash, and the passwords."""
    lines, passwords = [], {}
    for line in acl.splitlines():
        _, name, state, _ = line.split(" ", 3)
        if state == "off":
            lines.append(line)
            continue
        passwords[name] = token_hex(24)  # a URL takes it as it is
        digest = sha256(passwords[name].encode()).hexdigest()
        lines.append(line.replace("resetpass", f"resetpass #{digest}", 1))
    return "\n".join(lines) + "\n", passwords


def environment(user: str, password: str, store: str, metrics_key: str, certificate: str | None = None) -> str:
    """Return the environment file of a user's process."""
    cluster = "," in store
    scheme = f"redis{'s' if certificate else ''}{'+cluster' if cluster else ''}"
    trust = f"?ssl_ca_certs={certificate}" if certificate else ""
    variables = {"DENIABLE_REDIS_URL": f"{scheme}://{user}:{password}@{store}/0{trust}"}
    if cluster:
        variables["DENIABLE_DURABILITY"] = "replicated"
    if user in SERVES:
        variables |= {
            "DENIABLE_SERVES": SERVES[user],
            "DENIABLE_METRICS_KEY": metrics_key,
        }  # one key for who collects their numbers
    return "".join(f"{name}={text}\n" for name, text in variables.items())


def place_of(folder: Path) -> str:
    """Return where the processes of the files in use find the store."""
    named = re.search(r"^DENIABLE_REDIS_URL=\S+@([^/\s]+)", (folder / "operator.env").read_text("utf-8"), re.MULTILINE)
    if named is None:
        raise SystemExit(f"{folder / 'operator.env'} has no DENIABLE_REDIS_URL with a password: name the store by --store")
    return named[1]


def key_of(folder: Path) -> str | None:
    """Return the key for the numbers of the servers from the files in use, if they have one."""
    for path in (folder / f"{user}.env" for user in SERVES):
        if path.is_file() and (key := re.search(r"^DENIABLE_METRICS_KEY=(\S+)", path.read_text("utf-8"), re.MULTILINE)):
            return key[1]
    return None


def renewed(text: str, password: str) -> str:
    """Return an environment file with another password; all else stays."""
    return re.sub(r"^(DENIABLE_REDIS_URL=[^:\s]+://[^:@\s]+:)[^@\s]*@", rf"\g<1>{password}@", text, flags=re.MULTILINE)


def write(path: Path, text: str, mode: int = 0o600) -> None:
    """Write a file that is not there yet."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w", encoding="utf-8") as file:
        file.write(text)


def rules(path: str) -> str:
    """Read the shipped users.acl. A hash that stood in it would open the store beside the new one."""
    try:
        text = Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise argparse.ArgumentTypeError(f"{path} cannot be read ({reason}): name deploy/users.acl, as shipped") from None
    for number, line in enumerate(text.splitlines(), 1):
        if re.search(r"\s(?:[#>]|nopass\b)", line, re.IGNORECASE):
            rule = "has a password already, which would stay valid beside the new one"
        elif not re.match(r"user \S+ (?:on|off) resetpass ", line):
            rule = "is not `user NAME on resetpass ...`"
        else:
            continue
        raise argparse.ArgumentTypeError(f"{path}: line {number} {rule}: give deploy/users.acl, as shipped")
    if not text.strip():
        raise argparse.ArgumentTypeError(f"{path} has no users: give deploy/users.acl, as shipped")
    return text


def make(folder: Path, parser: argparse.ArgumentParser) -> None:
    """Make the folder of the new files, or take an empty one."""
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        parser.error(f"--folder {folder} is not empty: name a new folder, so that no password is lost")
    try:
        folder.mkdir(mode=0o711, exist_ok=True)
    except FileNotFoundError:
        parser.error(f"--folder {folder}: there is no folder {folder.parent}: make it first")
    except OSError as error:
        parser.error(f"--folder {folder} cannot be made: {error.strerror}")
    folder.chmod(0o711)  # also of a folder that was there: nobody else may write to it


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw passwords for the users of the store.")
    parser.add_argument("acl", type=rules, help="users.acl as shipped")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--folder", type=Path, help="write the files of all processes there; a new folder, or an empty one")
    where.add_argument("--show", action="store_true", help="write no files: print the hashes, and each password to stderr")
    parser.add_argument(
        "--store",
        metavar="HOST:PORT",
        help="where they find it (default: as with --keep, else 127.0.0.1:6379); of a cluster all nodes, with commas",
    )
    parser.add_argument(
        "--keep", type=Path, metavar="FOLDER", help="the files in use: the new ones say the same, but for passwords"
    )
    parser.add_argument("--tls", metavar="FILE", help="the store speaks TLS: where each machine has its certificate")
    arguments = parser.parse_args()
    shipped, before = arguments.acl, arguments.keep
    if before and not (arguments.folder and (before / "operator.env").is_file()):
        parser.error(
            f"--keep {before} names the folder of the files in use, with operator.env, and needs --folder for the new ones"
        )
    if arguments.tls and not arguments.tls.startswith("/"):
        parser.error(f"--tls {arguments.tls}: write the whole path, which is the same on each machine")
    if before and arguments.tls:
        parser.error("--tls: with --keep processes speak with the store as the files in use say; leave one of them out")
    if before and arguments.store:
        parser.error("--store: with --keep the store stays where the files in use have it; leave one of them out")
    store = arguments.store or (place_of(before) if before else "127.0.0.1:6379")
    acl, passwords = draw(clustered(shipped) if "," in store else shipped)
    if arguments.folder is None:
        sys.stdout.write(acl)
        sys.stderr.write("".join(f"{user} {password}\n" for user, password in passwords.items()))
        return
    make(arguments.folder, parser)
    metrics_key = (key_of(before) if before else None) or token_hex(24)
    # The store's own user reads this one; 192 random bits cannot be found from their hash.
    write(arguments.folder / "users.acl", acl, 0o644)
    write(arguments.folder / "deniable-metrics-key", metrics_key)
    # As users.acl, the store's own user reads these two. The one opens nothing but whether a server is ready,
    write(arguments.folder / "probe", passwords.pop("probe"), 0o644)
    if replica := passwords.pop("replica", None):
        # and the other nothing but a copy of the store, to whoever is in its network.
        write(arguments.folder / "replica.conf", f"masteruser replica\nmasterauth {replica}\n", 0o644)
    for user, password in passwords.items():
        text = environment(user, password, store, metrics_key, arguments.tls)
        if before and (before / f"{user}.env").is_file():  # a new version may have new users
            text = renewed((before / f"{user}.env").read_text("utf-8"), password)
        write(arguments.folder / f"{user}.env", text)
    following = f"put these files in the place of those in {before}" if before else "start the store with users.acl"
    files = "users.acl with hashes, and NAME.env with a password for each process (mode 0600)"
    sys.stdout.write(f"wrote {arguments.folder}: {files}. Next: {following} (deploy/README.md)\n")


if __name__ == "__main__":
    main()
