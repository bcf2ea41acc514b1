"""A release can be built again, byte by byte, and says what it is made of."""

import json
import os
import re
import shutil
import subprocess

from tests.lint.structure import tracked
from tests.support.process import REPO
from tests.support.relay import binary

# Of the C compiler and its library; with a newer one libm and the like are in libc.
OF_THE_COMPILER = {"libc", "libm", "libdl", "libpthread", "librt", "libgcc_s", "ld-linux-x86-64", "ld-linux-aarch64"}


def build_in(folder):
    for name in tracked():
        os.makedirs(os.path.dirname(folder / name), exist_ok=True)
        shutil.copyfile(os.path.join(REPO, name), folder / name)
    for command in (["cmake", "--preset", "release", "-DPGCOURIER_TESTS=OFF"], ["cmake", "--build", "--preset", "release", "--target", "pgcourier"]):
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    return (folder / "build/release/pgcourier").read_bytes()


def test_two_builds_in_two_folders_are_the_same(tmp_path):
    with open(binary(["release"]), "rb") as file:
        assert build_in(tmp_path / "another/place/of/more/letters") == file.read()


def test_no_folder_of_the_build_is_in_it():
    with open(binary(["release"]), "rb") as file:
        text = file.read()
    assert b"./relay/main.c" in text or b"relay/main.c" in text, "it has no debugging information to look at"
    assert os.fsencode(REPO) not in text


def test_what_it_is_made_of_is_what_it_is_linked_with():
    program = binary(["release"])
    with open(os.path.join(os.path.dirname(program), "pgcourier.cdx.json")) as file:
        bill = json.load(file)
    assert (bill["bomFormat"], bill["specVersion"], bill["metadata"]["component"]["name"]) == ("CycloneDX", "1.5", "pgcourier")
    assert {"libpq", "libcurl", "librdkafka"} < {part["name"] for part in bill["components"]}
    dynamic = subprocess.run(["readelf", "-dW", program], capture_output=True, text=True, check=True).stdout
    needed = set(re.findall(r"NEEDED.*\[(.+?)\.so", dynamic)) - OF_THE_COMPILER
    names = {"libssl": "openssl", "libcrypto": "openssl", "libhiredis": "hiredis", "libhiredis_ssl": "hiredis", "libjansson": "jansson"}
    assert {names.get(name, name) for name in needed} == {part["name"] for part in bill["components"]}


def test_its_versions_are_those_that_the_program_tells():
    program = binary(["release"])
    with open(os.path.join(os.path.dirname(program), "pgcourier.cdx.json")) as file:
        parts = {part["name"]: part["version"] for part in json.load(file)["components"]}
    told = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    told = dict(re.findall(r"(\w+) ([\d.]+)(?:, |\n)", told.split("with ")[1]))
    assert {name: parts[name] for name in told} == told
