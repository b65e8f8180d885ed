"""Draw a password for each user of the store: ``python deploy/passwords.py deploy/users.acl > users-with-passwords.acl``.

What is written has hashes only; the passwords are shown on the terminal (stderr), once, as ``user password``.
"""

import sys
from hashlib import sha256
from pathlib import Path
from secrets import token_hex


def main() -> None:
    for line in Path(sys.argv[1]).read_text("utf-8").splitlines():
        _, name, state, _ = line.split(" ", 3)
        password = token_hex(24)  # a URL takes it as it is
        digest = sha256(password.encode()).hexdigest()
        sys.stdout.write((line if state == "off" else line.replace("resetpass", f"resetpass #{digest}", 1)) + "\n")
        if state != "off":
            sys.stderr.write(f"{name} {password}\n")


if __name__ == "__main__":
    main()
