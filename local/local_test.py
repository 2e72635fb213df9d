"""The scripts of the local stack, as far as they can be tested without it."""

import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import emulator
import preflight
import stack
from paths import local_aws_environment

HERE = Path(__file__).resolve().parent


class Preflight(unittest.TestCase):
    def test_reads_the_rust_version_of_the_workspace(self):
        manifest = '[workspace.package]\nedition = "2024"\nrust-version = "1.94.1"\n'
        self.assertEqual(preflight.required_rust(manifest), (1, 94, 1))
        self.assertEqual(preflight.required_rust('rust-version = "1.94"'), (1, 94, 0))
        self.assertIsNone(preflight.required_rust("[workspace]"))

    def test_an_old_rust_is_named_with_the_version_it_needs(self):
        answer = mock.Mock(stdout="rustc 1.70.0 (abc 2023-06-01)", stderr="")
        with mock.patch("subprocess.run", return_value=answer), \
                mock.patch("shutil.which", return_value="/bin/true"), \
                self.assertRaisesRegex(preflight.Problem, r"rustc 1\.70\.0 is too old: .* needs 1\."):
            preflight.check_rust()

    def test_a_missing_cargo_is_named(self):
        with mock.patch("shutil.which", return_value=None), \
                self.assertRaisesRegex(preflight.Problem, "cargo is missing"):
            preflight.check_rust()

    def test_a_missing_or_old_node_is_named_with_what_to_do(self):
        with mock.patch("shutil.which", return_value=None), \
                self.assertRaisesRegex(preflight.Problem, "apt-get install nodejs npm"):
            preflight.check_node()
        answer = mock.Mock(stdout="v12.22.5\n", stderr="")
        with mock.patch("subprocess.run", return_value=answer), \
                mock.patch("shutil.which", return_value="/bin/true"), \
                self.assertRaisesRegex(preflight.Problem, r"node v12\.22\.5 is too old"):
            preflight.check_node()


class Emulator(unittest.TestCase):
    def record(self, **fields):
        file = Path(self.folder.name) / "emulator.json"
        file.write_text(json.dumps(fields))
        return mock.patch.object(emulator, "RECORD", file)

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def test_a_process_is_ours_only_with_the_start_time_on_record(self):
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        try:
            identity = emulator._identity(child.pid)
            with self.record(pid=child.pid, port=1, identity=identity):
                self.assertEqual(emulator.running()["pid"], child.pid)
            with self.record(pid=child.pid, port=1, identity="started at another time"):
                self.assertIsNone(emulator.running())
                self.assertFalse(emulator.stop())
            self.assertIsNone(child.poll(), "a process that is not ours must be left alone")
        finally:
            child.communicate(b"\n")

    def test_a_process_that_is_gone_is_not_running(self):
        child = subprocess.Popen([sys.executable, "-c", ""])
        identity = emulator._identity(child.pid)
        child.wait()
        with self.record(pid=child.pid, port=1, identity=identity):
            self.assertIsNone(emulator.running())


class Environment(unittest.TestCase):
    def test_no_tool_sees_the_callers_aws_configuration(self):
        mine = {"AWS_PROFILE": "mine", "AWS_ACCESS_KEY_ID": "real", "AWS_SESSION_TOKEN": "real"}
        with mock.patch.dict(os.environ, mine):
            env = local_aws_environment()
        self.assertNotIn("AWS_PROFILE", env)
        self.assertNotIn("real", env.values())
        self.assertTrue(env["AWS_ENDPOINT_URL"].startswith("http://127.0.0.1:"))


class Stack(unittest.TestCase):
    def test_every_local_parameter_exists_in_the_template(self):
        template = (HERE.parent / "template.yaml").read_text(encoding="utf-8")
        for name in stack.PARAMETERS:
            self.assertIn(f"\n  {name}:\n    Type: ", template)

    def test_lock_files_pin_every_package_with_hashes_and_name_no_host(self):
        for file in HERE.glob("requirements-*.txt"):
            text = file.read_text(encoding="utf-8")
            self.assertNotRegex(text, r"https?://|--index-url|--find-links")
            packages = re.findall(r"^([a-z0-9][^=]*)==.*\\\n    --hash=", text, re.MULTILINE)
            self.assertEqual(len(packages), len(re.findall(r"^[a-z0-9]", text, re.MULTILINE)))
        text = (HERE / "verify" / "package-lock.json").read_text(encoding="utf-8")
        self.assertNotRegex(text, r"https?://|\"resolved\"")
        packages = [entry for name, entry in json.loads(text)["packages"].items() if name]
        self.assertTrue(packages)
        for package in packages:
            self.assertIn("sha512-", package["integrity"])


if __name__ == "__main__":
    unittest.main()
