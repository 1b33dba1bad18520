"""The doctor's checks of this machine: disk, limits, files, ports, tokens, processors."""

from __future__ import annotations

import os
import resource
import shutil
from collections.abc import Iterator
from importlib.util import find_spec

import psutil

from lightstream.runtime.clock import NANOS_PER_SECOND, SystemClock
from lightstream.runtime.disk import DiskRoom
from lightstream.runtime.http.tokens import TokensFile
from lightstream.runtime.listening import is_loopback
from lightstream.runtime.ports import is_free
from lightstream.runtime.services import running_services
from lightstream.runtime.settings import Settings
from lightstream.runtime.tls import read_certificate
from lightstream.schemas.distribution import install_hint
from lightstream.schemas.errors import SettingsError

from .finding import Finding, Level

GIBIBYTE = 1024**3
DISK_FREE_BYTES_WARNED = 5 * GIBIBYTE
"""A day of 100 small rollouts a minute."""
MEMORY_BYTES_WARNED = 4 * GIBIBYTE
"""Kafka, the view and a worker take two of them."""
OPEN_FILES_WARNED = 10_000
"""A server takes as many connections as three quarters of its open files."""
OTHERS_RIGHTS = 0o077
SECONDS_PER_DAY = 24 * 3600
CERTIFICATE_DAYS_WARNED = 7
"""Those of ACME, of 90 days, are renewed with 30 left."""
PORTS = ("broker_port", "view_port", "view_flight_port", "proxy_port", "policy_port", "store_port", "gateway_port")
TOKENS = ("proxy_token", "gateway_token", "store_token", "view_token", "policy_token")


def disk(settings: Settings) -> Iterator[Finding]:
    """Free space of the data folder, and remains of older versions in it."""
    try:
        free_bytes = DiskRoom(settings).free_bytes()
    except OSError as error:
        yield Finding("disk", Level.ERROR, f"the disk of {settings.data_dir} cannot be asked: {error}.", "Mount it.")
        return
    room = f"the disk of {settings.data_dir} has {free_bytes / GIBIBYTE:,.1f} GiB free"
    if free_bytes < settings.disk_free_bytes_min:
        least = settings.disk_free_bytes_min / GIBIBYTE
        yield Finding(
            "disk",
            Level.ERROR,
            f"{room}, less than the {least:,.1f} GiB at which all writing pauses.",
            "Free space there; writing goes on by itself.",
        )
    elif free_bytes < DISK_FREE_BYTES_WARNED:
        yield Finding("disk", Level.WARNING, f"{room}.", "Free space there, or name another LIGHTSTREAM_DATA_DIR.")
    else:
        yield Finding("disk", Level.FINE, f"{room}.")
    if find_spec("duckdb") is None:
        return
    from lightstream.store_views.materialiser.materialiser import default_path, files_of_other_versions

    for file in files_of_other_versions(default_path(settings)):
        yield Finding(
            "disk",
            Level.WARNING,
            f"{file} is the view of another version, {file.stat().st_size / GIBIBYTE:,.1f} GiB.",
            "Delete it if you do not go back to that version.",
        )


def limits(_: Settings) -> Iterator[Finding]:
    """Open files and memory."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < OPEN_FILES_WARNED:
        yield Finding(
            "limits",
            Level.WARNING,
            f"a process may have {hard:,} open files, so a server takes {hard * 3 // 4:,} connections.",
            "Raise the hard limit (`ulimit -Hn`, LimitNOFILE of systemd).",
        )
    else:
        yield Finding("limits", Level.FINE, f"a process may have {hard:,} open files.")
    memory = psutil.virtual_memory().total
    level = Level.WARNING if memory < MEMORY_BYTES_WARNED else Level.FINE
    step = "Set LIGHTSTREAM_VIEW_MEMORY_BYTES_MAX, or take a larger machine." if level is Level.WARNING else ""
    yield Finding("limits", level, f"the machine has {memory / GIBIBYTE:,.1f} GiB of memory.", step)


def modes(settings: Settings) -> Iterator[Finding]:
    """Folders and files that other users of the machine may read."""
    folder = settings.data_dir
    paths = [*sorted(folder.iterdir())] if folder.is_dir() else []
    paths = [path for path in paths if path.is_dir()]
    if settings.tokens_file is not None and settings.tokens_file.exists():
        paths.append(settings.tokens_file)
    key = settings.tls_key_file or settings.tls_certificate_file
    if key is not None and key.exists():
        paths.append(key)
    opened = [path for path in paths if path.stat().st_mode & OTHERS_RIGHTS]
    for path in opened:
        yield Finding(
            "modes",
            Level.WARNING,
            f"other users of this machine may read {path} ({path.stat().st_mode & 0o777:04o}).",
            f"chmod go= {path}",
        )
    if not opened:
        yield Finding("modes", Level.FINE, "nothing of ours can be read by other users.")


def tokens(settings: Settings) -> Iterator[Finding]:
    """Who may ask our servers."""
    has_token = settings.tokens_file is not None or all(getattr(settings, name) is not None for name in TOKENS)
    if settings.tokens_file is not None:
        try:
            expired = TokensFile(settings.tokens_file).expired()
        except SettingsError as error:
            yield Finding("tokens", Level.ERROR, error.message, error.next_step)
            return
        for name in expired:
            yield Finding(
                "tokens",
                Level.WARNING,
                f"the token of {name!r} in {settings.tokens_file} has expired.",
                "Remove it, or give it another day.",
            )
    if is_loopback(settings.host) or has_token or settings.tls_client_ca_file is not None:
        yield Finding("tokens", Level.FINE, "servers answer this machine alone, or ask for a token.")
        return
    missing = ", ".join(f"LIGHTSTREAM_{name.upper()}" for name in TOKENS if getattr(settings, name) is None)
    yield Finding(
        "tokens",
        Level.WARNING if settings.open_to_network else Level.ERROR,
        f"servers listen on {settings.host}, where other machines reach them, and some ask for no token.",
        f"Set LIGHTSTREAM_TOKENS_FILE, or {missing}.",
    )


def tls(settings: Settings) -> Iterator[Finding]:
    """The certificate of our servers, and whether they need one."""
    try:
        certificate = read_certificate(settings)
    except SettingsError as error:
        yield Finding("tls", Level.ERROR, error.message, error.next_step)
        return
    file = settings.tls_certificate_file
    if certificate is None:
        if not is_loopback(settings.host):
            text = f"servers listen on {settings.host} without TLS: tokens and records pass in the clear."
            yield Finding("tls", Level.WARNING, text, "Set LIGHTSTREAM_TLS_CERTIFICATE_FILE, or put TLS before them.")
        return
    days = (certificate.expires_s - SystemClock().now_unix_nano() / NANOS_PER_SECOND) / SECONDS_PER_DAY
    if days < CERTIFICATE_DAYS_WARNED:
        text = f"the certificate in {file} expires in {days:,.1f} days."
        yield Finding("tls", Level.WARNING, text, "Replace the file; servers read it again, and need no restart.")
    else:
        yield Finding("tls", Level.FINE, f"servers speak TLS; the certificate expires in {days:,.0f} days.")


def ports(settings: Settings) -> Iterator[Finding]:
    """Ports that settings name, and others have."""
    ours = {service.address.rpartition(":")[2] for service in running_services(settings)}
    has_conflict = False
    for name in PORTS:
        port = getattr(settings, name)
        if port and str(port) not in ours and not is_free(port):
            has_conflict = True
            yield Finding(
                "ports",
                Level.ERROR,
                f"port {port} (LIGHTSTREAM_{name.upper()}) is taken by another program.",
                f"Stop that program (`ss -ltnp sport = :{port}` names it), or choose another port.",
            )
    if not has_conflict:
        yield Finding("ports", Level.FINE, "the ports that settings name are free, or ours.")


def programs(settings: Settings) -> Iterator[Finding]:
    """Programs that must be installed beside Python packages, and the graphics processors."""
    from lightstream.broker.java import find_java
    from lightstream.schemas.errors import BrokerError

    if not settings.kafka_bootstrap_servers:
        try:
            find_java()
        except BrokerError as error:
            yield Finding("programs", Level.ERROR, error.message, error.next_step)
    if find_spec("torch") is None:
        step = f"To train here, install {install_hint('all')}."
        yield Finding("programs", Level.FINE, "torch is not installed: this machine does not train.", step)
        return
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if count:
        yield Finding("programs", Level.FINE, f"torch sees {count} GPUs ({torch.cuda.get_device_name(0)}).")
    elif shutil.which("nvidia-smi") is not None:
        yield Finding(
            "programs",
            Level.ERROR,
            f"this machine has NVIDIA's driver, and torch {torch.__version__} sees no GPU.",
            "Install a torch for this driver's CUDA; see docs/train-on-gpus.md.",
        )
    else:
        yield Finding("programs", Level.FINE, f"torch trains on {os.cpu_count()} processors; there is no GPU.")
