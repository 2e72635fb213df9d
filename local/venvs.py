"""The virtual environments, and one of Node. The emulator and the SAM CLI pin
different versions of the same libraries, so they cannot share one.

Each is installed from its lock file with hashes checked, and again only when
the lock file or its interpreter has changed.
"""

import hashlib
import shutil
import subprocess
import sys

from paths import ROOT, VENVS, tool
from steps import step

STAMP = "installed-from"


def is_current(target, digest):
    stamp = target / STAMP
    return stamp.exists() and stamp.read_text() == digest


def ensure(name, purpose):
    lock = ROOT / "local" / f"requirements-{name}.txt"
    digest = hashlib.sha256(lock.read_bytes() + sys.version.encode()).hexdigest()
    target = VENVS / name
    if is_current(target, digest) and tool(name, "python").exists():
        return
    with step(f"Install {purpose}", f"install-{name}.log") as install:
        shutil.rmtree(target, ignore_errors=True)
        install.run([sys.executable, "-m", "venv", target])
        install.run(
            # The lock file names every package, so pip has nothing to resolve.
            [tool(name, "python"), "-m", "pip", "install", "--require-hashes", "--no-deps",
             "--no-compile", "--no-input", "--disable-pip-version-check", "--progress-bar", "off",
             "-r", lock],
            watch=lambda line: line.split()[1] if line.startswith("Collecting ") else None,
        )
        (target / STAMP).write_text(digest)


def ensure_node(name, purpose):
    """The packages of local/NAME, into a folder that Node finds them in."""
    source = ROOT / "local" / name
    files = [source / "package.json", source / "package-lock.json"]
    version = subprocess.run(["node", "--version"], capture_output=True, check=True).stdout
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in files) + version).hexdigest()
    target = VENVS / f"{name}-node"
    if is_current(target, digest):
        return
    with step(f"Install {purpose}", f"install-{name}-node.log") as install:
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        for file in files:
            shutil.copy(file, target)
        # The lock file names every package with its hash. No package may run anything of its own.
        install.run(["npm", "ci", "--prefix", target, "--ignore-scripts", "--no-audit", "--no-fund"])
        (target / STAMP).write_text(digest)


def ensure_emulator():
    ensure("emulator", "the AWS emulator")


def ensure_sam():
    ensure("sam", "the SAM CLI and cargo-lambda")


def ensure_verifiers():
    ensure("verify", "the official verifiers (Python)")
    ensure_node("verify", "the official verifiers (Node)")
