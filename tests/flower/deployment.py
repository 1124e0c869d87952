"""A Flower deployment on loopback: a SuperLink with TLS, SuperNodes with keys, and their end.

Every process bears a mark in its environment, which its descendants inherit. So what was started
is found again in ``/proc`` by that mark, whichever session or parent it has by then, and is ended
by its process id. Should the tests themselves be killed, the kernel ends what they started.
"""

import contextlib
import datetime
import ipaddress
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
import uuid
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LOOPBACK = "127.0.0.1"
PORTS = range(20_000, 30_000)
CONNECTION = "loopback"
SUPERLINK = "superlink"
MARK = "FEDAVOT_TEST_DEPLOYMENT"
PART = "FEDAVOT_TEST_PART"
STALL_SECONDS = 150
"""More than the minute for which Flower takes a killed SuperNode for alive and nothing happens.

Of a process that has a core to itself: :func:`patience` allows more on a busy machine.
"""
ATTEMPTS = 10
"""How often a command is given: on a busy machine Flower's client times out after 30 seconds."""
BIN = Path(sys.executable).parent
# prctl(PR_SET_PDEATHSIG, SIGKILL), then become the command.
TIED = "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 9); os.execv(sys.argv[1], sys.argv[1:])"
PATIENT = """\
# Flower takes a task away from a process that has not reported for 30 seconds, which on a busy
# machine is less than the process needs to start; the task would begin again for ever. And it gives
# a run up if another thread of the SuperLink holds the database for 5 seconds.
import sys

if any("flower-super" in argument for argument in sys.orig_argv):
    from flwr.supercore import sql_mixin
    from flwr.supercore.corestate import in_memory_corestate, sql_corestate

    in_memory_corestate.HEARTBEAT_DEFAULT_INTERVAL = 3600
    sql_corestate.HEARTBEAT_DEFAULT_INTERVAL = 3600
    patient = {**dict(sql_mixin.SQLITE_PRAGMAS), "busy_timeout": "3600000"}
    sql_mixin.SQLITE_PRAGMAS = tuple(patient.items())
"""
"""What Flower's processes run first, as ``sitecustomize``."""
OFFLINE = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
}


class Deployment:
    """A SuperLink and its SuperNodes in a folder; a context manager that leaves no process.

    Parameters
    ----------
    folder : Path
        Where certificates, keys, the database, logs and Flower's own files go.
    app : Path
        The Flower app that :meth:`submit` runs.
    """

    def __init__(self, folder, app):
        self.folder = folder
        self.app = app
        self.port = free_port()
        self._mark = uuid.uuid4().hex
        self._started = []
        self._latest = {}
        self._known = set()
        self._authority = write_certificates(folder)
        (folder / "home").mkdir()
        (folder / "patient").mkdir()
        (folder / "patient" / "sitecustomize.py").write_text(PATIENT, encoding="utf-8")
        (folder / "home" / "config.toml").write_text(
            f'[superlink]\ndefault = "{CONNECTION}"\n\n[superlink.{CONNECTION}]\n'
            f'address = "{LOOPBACK}:{self.port}"\nroot-certificates = "{self._authority}"\n',
            encoding="utf-8",
        )

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        self.close()
        if error is not None:
            for part in self._latest:
                error.add_note(f"--- {part} ---\n{self.log(part)[-2000:]}")

    def start_superlink(self):
        """Start the SuperLink, on the database it had before if any, and wait until it serves."""
        server = self._start(
            SUPERLINK,
            "flower-superlink",
            *("--host", LOOPBACK, "--port", str(self.port)),
            *("--ssl-ca-certfile", self._authority),
            *("--ssl-certfile", self.folder / "server.pem"),
            *("--ssl-keyfile", self.folder / "server.key"),
            *("--database", self.folder / "state.db"),
            "--enable-supernode-auth",
        )
        self.wait_until(
            lambda: listens(self.port) or server.poll() is not None, what="the SuperLink serves"
        )
        if server.poll() is not None:
            raise RuntimeError(f"the SuperLink left with {server.poll()}\n{self.log(SUPERLINK)}")

    def register(self, key, *, name):
        """Register a public key under a name; return the node id."""
        command = ("supernode", "register", f"{key}.pub", CONNECTION, "--name", name)
        said = self._persistently(*command, listed=("supernode", "list"), kind="node")
        return int(said["node-id"])

    def start_node(self, part, key, *, config=""):
        """Start a SuperNode with a private key, and return it without waiting."""
        return self._start(
            part,
            "flower-supernode",
            *("--superlink", f"{LOOPBACK}:{self.port}"),
            *("--root-certificates", self._authority),
            *("--auth-supernode-private-key", key),
            *("--host", LOOPBACK, "--port", str(free_port())),
            *("--node-config", config),
        )

    def is_accepted(self, part):
        """Wait until the SuperLink has taken or refused a SuperNode, and say which."""
        process, path = self._latest[part]

        def decided():
            return process.poll() is not None or b"SuperNode ID" in path.read_bytes()

        self.wait_until(decided, what=f"{part} is accepted or refused")
        return process.poll() is None

    def submit(self, **config):
        """Run the app with values of its run config; return the run's id."""
        values = " ".join(f"{key}={json.dumps(value)}" for key, value in config.items())
        command = ("run", str(self.app), CONNECTION, "--run-config", values)
        return self._persistently(*command, listed=("list",), kind="run")["run-id"]

    def status(self, run):
        """Return the status of a run, such as ``finished:completed``."""
        runs = self._persistently("list", CONNECTION, "--run-id", run)["runs"]
        return runs[0]["status"]

    def wait_until(self, holds, *, what, every=0.1):
        """Wait until a condition holds, and return it; give up if nothing is written meanwhile."""

        def written():
            return {path: path.stat().st_size for path in self.folder.glob("*.log")}

        return wait_until(holds, what=what, progress=written, every=every)

    def log(self, part):
        """Return what a part and its children wrote since the part was last started."""
        _, path = self._latest[part]
        return path.read_text(encoding="utf-8", errors="replace")

    def kill(self, part):
        """Kill a part and all it started, as if its machine lost power."""
        end(lambda: self.processes(part))

    def close(self):
        """Kill all that was started here."""
        end(self.processes)
        for process in self._started:
            process.wait()

    def processes(self, part=None):
        """Return the ids of the living processes of a part, or of the whole deployment."""
        wanted = {f"{MARK}={self._mark}"} | ({f"{PART}={part}"} if part else set())
        return [pid for pid in living() if wanted <= environment(pid)]

    def _start(self, part, *command):
        program, *arguments = map(str, command)
        path = self.folder / f"{part}-{len(self._started)}.log"
        with path.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-c", TIED, str(BIN / program), *arguments],
                env=self._environment(part),
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self._started.append(process)
        self._latest[part] = process, path
        return process

    def _environment(self, part):
        path = os.pathsep.join([str(BIN), os.environ.get("PATH", "")])
        home = str(self.folder / "home")
        own = {"PATH": path, "FLWR_HOME": home, MARK: self._mark, PART: part}
        first = [str(self.folder / "patient"), os.environ.get("PYTHONPATH", "")]
        own["PYTHONPATH"] = os.pathsep.join(filter(None, first))
        # Looking for work every second would be most of a short round.
        return os.environ | OFFLINE | own | {"FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2"}

    def _persistently(self, *command, listed=None, kind=None):
        """Give a command until it succeeds.

        One that timed out may have been obeyed all the same: where a list has a node or a run that
        is not known yet, that is the answer.
        """
        for attempt in range(1, ATTEMPTS + 1):
            try:
                said = self._flwr(*command)
            except RuntimeError:
                if attempt == ATTEMPTS:
                    raise
                said = self._unknown(listed, kind) if listed else None
            if said:
                self._known.add(said.get(f"{kind}-id"))
                return said
        raise AssertionError("the last attempt returns or raises")

    def _unknown(self, listed, kind):
        """Return a node or a run of a list that no command has returned, if there is one."""
        found = self._persistently(*listed, CONNECTION)[f"{kind}s"]
        return next((one for one in found if one[f"{kind}-id"] not in self._known), None)

    def _flwr(self, *command):
        done = subprocess.run(
            [str(BIN / "flwr"), *map(str, command), "--format", "json"],
            env=self._environment("cli"),
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        said = json.loads(done.stdout) if done.returncode == 0 else {"success": False}
        # A request that times out exits with 0, too.
        if not said["success"]:
            raise RuntimeError(
                f"flwr {command} exited {done.returncode}\n{done.stdout}{done.stderr}"
            )
        return said


def wait_until(holds, *, what, progress, every=0.1):
    """Wait until a condition holds, and return it.

    However long it takes on a busy machine: TimeoutError only if ``progress`` does not change for
    longer than the machine's load explains.
    """
    seen, since = progress(), time.monotonic()
    while not (found := holds()):
        if (now := progress()) != seen:
            seen, since = now, time.monotonic()
        if (waited := time.monotonic() - since) > patience():
            raise TimeoutError(f"nothing happened for {waited:.0f} s before {what}")
        time.sleep(every)
    return found


def patience():
    """Return the seconds without progress that are a stall, given how many share a core now."""
    return STALL_SECONDS * max(1.0, os.getloadavg()[0] / os.cpu_count())


def end(processes):
    """Kill the processes a function lists, until it lists none: children may still be starting."""

    def none_left():
        for pid in (found := processes()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not found

    wait_until(none_left, what="the processes are gone", progress=processes)


def living():
    """Return the ids of all processes but the dead whose parents have not looked yet."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
                if state not in "ZX":
                    found.append(int(folder.name))
    return found


def environment(pid):
    """Return the environment a process was started with; empty if it is not ours to see."""
    try:
        raw = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return set()
    return {os.fsdecode(entry) for entry in raw.split(b"\0")}


def free_port():
    """Return a port nobody has, below those that the system gives to connections.

    A server that is restarted must find its port free: none of the system's own choosing would
    stay so.
    """
    for port in random.SystemRandom().sample(PORTS, 100):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((LOOPBACK, port))
            return port
    raise RuntimeError(f"of a hundred ports in {PORTS} none is free")


def listens(port):
    """Say whether somebody listens on a port."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((LOOPBACK, port)) == 0


def write_key(path):
    """Write a SuperNode's key pair, private to ``path`` and public to ``path``.pub."""
    key = ec.generate_private_key(ec.SECP384R1())
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    Path(f"{path}.pub").write_bytes(public)
    return path


def write_certificates(folder):
    """Write an authority and a server certificate for loopback; return the authority's path."""
    authority = ec.generate_private_key(ec.SECP256R1())
    server = ec.generate_private_key(ec.SECP256R1())
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test authority")])
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test superlink")])
    issued = _certificate(issuer, issuer, authority.public_key()).add_extension(
        x509.BasicConstraints(ca=True, path_length=0), critical=True
    )
    issued = issued.add_extension(_usage(signs_certificates=True), critical=True)
    root = issued.sign(authority, hashes.SHA256())
    served = (
        _certificate(subject, issuer, server.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(LOOPBACK))]),
            critical=False,
        )
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()),
            critical=False,
        )
        .sign(authority, hashes.SHA256())
    )
    path = folder / "authority.pem"
    path.write_bytes(root.public_bytes(Encoding.PEM))
    (folder / "server.pem").write_bytes(served.public_bytes(Encoding.PEM))
    (folder / "server.key").write_bytes(
        server.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    )
    return path


def _certificate(subject, issuer, public_key):
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
    )


def _usage(*, signs_certificates):
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
