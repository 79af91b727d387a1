"""Run the example with real processes on this machine: one SuperLink, a SuperNode for each owner, TLS and node authentication.

    python processes.py --owners 3 --folder ~/owners-processes

The script makes a certificate authority, a certificate for 127.0.0.1 and a key for each owner, starts the SuperLink, registers
the owners' public keys, starts the SuperNodes, runs the app, and ends everything. In life each organisation starts its own
SuperNode; README.md has the commands. All ports are on the loopback interface.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import ipaddress
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from ssl import create_default_context

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

HERE = Path(__file__).parent
HOST = "127.0.0.1"
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "OMP_NUM_THREADS": "1",
}


def pem(key: ec.EllipticCurvePrivateKey, form: serialization.PrivateFormat) -> bytes:
    """Return a private key as text."""
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def secret(path: Path, text: bytes) -> None:
    """Write a file that its owner alone can read."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(text)


def certificate(
    name: str, key: ec.EllipticCurvePrivateKey, issuer: str, signer: ec.EllipticCurvePrivateKey, *, authority: bool
) -> bytes:
    """Return a certificate of a day for this machine, or of the authority that signs it."""
    now = datetime.datetime.now(datetime.UTC)

    def named(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])

    names = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address(HOST))])
    builder = x509.CertificateBuilder(named(issuer), named(name), key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - datetime.timedelta(minutes=5)).not_valid_after(now + datetime.timedelta(days=1))
    builder = builder.add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
    builder = builder.add_extension(names, critical=False)
    return builder.sign(signer, hashes.SHA384()).public_bytes(serialization.Encoding.PEM)


def make_certificates(folder: Path) -> None:
    """Write ca.crt, server.pem and server.key."""
    authority, server = ec.generate_private_key(ec.SECP384R1()), ec.generate_private_key(ec.SECP384R1())
    (folder / "ca.crt").write_bytes(certificate("owners CA", authority, "owners CA", authority, authority=True))
    (folder / "server.pem").write_bytes(certificate("SuperLink", server, "owners CA", authority, authority=False))
    secret(folder / "server.key", pem(server, serialization.PrivateFormat.PKCS8))


def make_key(path: Path) -> None:
    """Write an owner's key and, beside it, its public key."""
    key = ec.generate_private_key(ec.SECP384R1())
    secret(path, pem(key, serialization.PrivateFormat.OpenSSH))
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    path.with_suffix(".pub").write_bytes(public + b"\n")


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        return int(listener.getsockname()[1])


class Federation:
    """One SuperLink and its SuperNodes, as processes of their own.

    Args:
        folder: for certificates, keys, logs, Flower's home and everything that server and owners keep.
        owners: how many SuperNodes are started.
    """

    def __init__(self, folder: Path, owners: int) -> None:
        self.folder, self.owners, self.port = folder.expanduser().resolve(), owners, free_port()
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.ports = {f"owner-{number}": free_port() for number in range(owners)}
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for name in ("logs", "keys"):
            (self.folder / name).mkdir(exist_ok=True, mode=0o700)
        if not (self.folder / "keys" / "server.key").exists():
            make_certificates(self.folder / "keys")
        home = self.folder / "flower"
        home.mkdir(exist_ok=True)
        connection = f'[superlink]\ndefault = "owners"\n\n[superlink.owners]\naddress = "{HOST}:{self.port}"\n'
        (home / "config.toml").write_text(connection + f'root-certificates = "{self.folder}/keys/ca.crt"\n')
        self.environment = {**os.environ, **QUIET, "FLWR_HOME": str(home)}
        self.bin = Path(sys.executable).parent

    def start(self, name: str, *command: str) -> None:
        """Start a process whose output goes to a log."""
        with (self.folder / "logs" / f"{name}.log").open("ab") as log:
            program = [str(self.bin / command[0]), *command[1:]]
            self.processes[name] = subprocess.Popen(
                program, stdout=log, stderr=log, env=self.environment, cwd=self.folder, start_new_session=True
            )

    def start_link(self) -> None:
        """Start the SuperLink, with TLS; it keeps its state in a file, so that it can be started again."""
        keys = self.folder / "keys"
        files = [
            "--ssl-ca-certfile",
            f"{keys}/ca.crt",
            "--ssl-certfile",
            f"{keys}/server.pem",
            "--ssl-keyfile",
            f"{keys}/server.key",
        ]
        address = ["--host", HOST, "--port", str(self.port), "--database", str(self.folder / "superlink.db")]
        self.start("superlink", "flower-superlink", *files, *address, "--enable-supernode-auth")
        trusted, end = create_default_context(cafile=str(keys / "ca.crt")), time.monotonic() + 180
        while time.monotonic() < end:
            with contextlib.suppress(OSError):
                with urllib.request.urlopen(f"https://{HOST}:{self.port}/health", context=trusted, timeout=5):
                    return
            time.sleep(1)
        raise RuntimeError(f"the SuperLink did not start; see {self.folder}/logs/superlink.log")

    def start_owner(self, number: int, config: str = "") -> None:
        """Start an owner's SuperNode with its key; register the key if it is new."""
        name = f"owner-{number}"
        key, state = self.folder / "keys" / name, self.folder / name
        if not key.exists():
            make_key(key)
            self.flwr("supernode", "register", f"{key}.pub")
        own = f'partition-id={number} num-partitions={self.owners} state="{state}" {config}'
        trust = ["--root-certificates", str(self.folder / "keys" / "ca.crt"), "--auth-supernode-private-key", str(key)]
        address = ["--superlink", f"{HOST}:{self.port}", "--host", HOST, "--port", str(self.ports[name])]
        self.start(name, "flower-supernode", *trust, *address, "--node-config", own.strip())

    def flwr(self, *command: str, limit: float = 120) -> str:
        """Run a command of Flower's and return what it says."""
        done = subprocess.run(
            [str(self.bin / "flwr"), *command], env=self.environment, capture_output=True, text=True, timeout=limit, check=False
        )
        if done.returncode:
            raise RuntimeError(f"flwr {' '.join(command)}: {done.stdout}{done.stderr}")
        return done.stdout

    def run(self, config: str, *, limit: float = 900) -> str:
        """Run the app, and return its log."""
        return self.flwr("run", str(HERE), "owners", "--stream", "--run-config", config, limit=limit)

    def stop(self, name: str, *, kill: bool = False) -> None:
        """End a process and all that it has started."""
        process = self.processes.pop(name, None)
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 9 if kill else 15)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.wait(20)


@contextlib.contextmanager
def federation(folder: Path, owners: int) -> Iterator[Federation]:
    """Start a SuperLink and the owners' SuperNodes; end them all afterwards."""
    running = Federation(folder, owners)
    try:
        running.start_link()
        for number in range(owners):
            running.start_owner(number)
        yield running
    finally:
        for name in [*running.processes]:
            running.stop(name)


def main() -> None:
    """Run the app once, with real processes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--owners", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=Path("~/owners-processes"))
    parser.add_argument("--config", default="", help="settings of the app that differ from pyproject.toml, as for flwr run")
    given = parser.parse_args()
    folder = given.folder.expanduser().resolve()
    with federation(folder, given.owners) as running:
        few = max(2, given.owners - 1)
        print(running.run(f'folder="{folder}/server" owners={given.owners} least={few} {given.config}'.strip()))


if __name__ == "__main__":
    main()
