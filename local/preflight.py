"""What this machine must have before anything is started, each with its remedy."""

import os
import re
import shutil
import subprocess
import sys

from paths import ROOT
from steps import Problem

OLDEST_PYTHON = (3, 10)  # of the emulator and of the SAM CLI
OLDEST_NODE = 18  # Debian 12's; the verifiers need nothing newer


def check_python():
    found = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < OLDEST_PYTHON:
        wanted = ".".join(map(str, OLDEST_PYTHON))
        raise Problem(
            f"Python {found} is too old: the local tools need {wanted} or newer.\n"
            "Install one and name it: make up PYTHON=python3.12"
        )
    try:
        import ensurepip  # noqa: F401
        import venv  # noqa: F401
    except ImportError:
        raise Problem(
            f"Python {found} has no venv module.\n"
            "On Debian and Ubuntu: apt-get install python3-venv"
        ) from None


def required_rust(manifest):
    """`rust-version` of the workspace as numbers, or None where it names none."""
    found = re.search(r'^rust-version\s*=\s*"([0-9.]+)"', manifest, re.MULTILINE)
    return _numbers(found.group(1)) if found else None


def _numbers(version):
    parts = [int(part) for part in version.split(".")]
    return tuple(parts + [0] * (3 - len(parts)))


def check_rust():
    if not shutil.which("cargo") or not shutil.which("rustc"):
        raise Problem("cargo is missing. Install Rust with rustup (https://rustup.rs).")
    if not (shutil.which("cc") or os.environ.get("CC")):
        raise Problem(
            "No C compiler (cc): Rust needs it to link.\n"
            "On Debian and Ubuntu: apt-get install gcc libc6-dev; on a Mac: xcode-select --install"
        )
    manifest = ROOT / "Cargo.toml"
    wanted = required_rust(manifest.read_text(encoding="utf-8"))
    answer = subprocess.run(["rustc", "--version"], cwd=ROOT, capture_output=True, text=True)
    found = re.match(r"rustc ([0-9]+\.[0-9]+\.[0-9]+)", answer.stdout)
    if not found:
        raise Problem(f"`rustc --version` does not work:\n{answer.stderr.strip()}")
    if wanted and _numbers(found.group(1)) < wanted:
        raise Problem(
            f"rustc {found.group(1)} is too old: this project needs "
            f"{'.'.join(map(str, wanted))} or newer.\nWith rustup: rustup update stable"
        )


def check_node():
    if not shutil.which("node") or not shutil.which("npm"):
        raise Problem(
            "node or npm is missing: what we sign is verified by the official library for Node too.\n"
            "On Debian and Ubuntu: apt-get install nodejs npm; on a Mac: brew install node"
        )
    answer = subprocess.run(["node", "--version"], capture_output=True, text=True)
    found = re.match(r"v([0-9]+)\.", answer.stdout)
    if not found or int(found.group(1)) < OLDEST_NODE:
        raise Problem(f"node {answer.stdout.strip()} is too old: version {OLDEST_NODE} or newer is needed.")
