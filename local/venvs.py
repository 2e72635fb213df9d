"""The two virtual environments. The emulator and the SAM CLI pin different
versions of the same libraries, so they cannot share one.

Each is installed from its lock file with hashes checked, and again only when
the lock file or Python has changed.
"""

import hashlib
import shutil
import sys

from paths import ROOT, VENVS, tool
from steps import step


def ensure(name, purpose):
    lock = ROOT / "local" / f"requirements-{name}.txt"
    digest = hashlib.sha256(lock.read_bytes() + sys.version.encode()).hexdigest()
    target = VENVS / name
    stamp = target / "installed-from"
    if stamp.exists() and stamp.read_text() == digest and tool(name, "python").exists():
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
        stamp.write_text(digest)


def ensure_emulator():
    ensure("emulator", "the AWS emulator")


def ensure_sam():
    ensure("sam", "the SAM CLI and cargo-lambda")
