"""Where things are, and the environment of every tool that `make up` starts.

No tool may see the AWS configuration or the credentials of the person at the
keyboard: the local stack talks to the emulator on the loopback address only.
"""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STATE = ROOT / ".local"
LOGS = STATE / "logs"
STACK_FILE = STATE / "stack.json"
VENVS = ROOT / ".venv"

HOST = "127.0.0.1"
PORT = int(os.environ.get("REDELIVER_PORT", "4577"))
ENDPOINT = f"http://{HOST}:{PORT}"
REGION = "us-east-1"
ACCOUNT = "000000000000"


def tool(venv, name):
    return VENVS / venv / "bin" / name


def local_aws_environment():
    """The caller's environment, with everything about AWS replaced."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "SAM_CLI_"))}
    nothing = STATE / "empty"
    nothing.parent.mkdir(exist_ok=True)
    nothing.touch()
    env.update(
        AWS_ACCESS_KEY_ID="test",
        AWS_SECRET_ACCESS_KEY="test",
        AWS_REGION=REGION,
        AWS_DEFAULT_REGION=REGION,
        AWS_ENDPOINT_URL=ENDPOINT,
        AWS_CONFIG_FILE=str(nothing),
        AWS_SHARED_CREDENTIALS_FILE=str(nothing),
        AWS_EC2_METADATA_DISABLED="true",
        SAM_CLI_TELEMETRY="0",
        SAM_CLI_POLL_DELAY="1",
        PATH=f"{VENVS / 'sam' / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}",
    )
    # A proxy in the environment must not come between us and the loopback address.
    for name in ("NO_PROXY", "no_proxy"):
        env[name] = ",".join(filter(None, [env.get(name), HOST, "localhost"]))
    return env
