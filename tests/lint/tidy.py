"""Runs clang-tidy on every C file of a build, in parallel: tidy.py build/clang.

A file that was clean is not looked at again until it, a header of ours that it includes, its flags, the checks or
clang-tidy itself change; .cache/tidy holds the hashes of the clean ones."""

import concurrent.futures
import hashlib
import json
import os
import shlex
import subprocess
import sys

REPO = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CACHE = os.path.join(REPO, ".cache", "tidy")


def own_files(entry):
    """The file and the headers of this repository that it reaches, from the compiler."""
    command = shlex.split(entry["command"])
    command = command[:command.index("-o")] + command[command.index("-o") + 2:]
    command = [*(part for part in command if part != "-c"), "-MM"]
    done = subprocess.run(command, cwd=entry["directory"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return [entry["file"]]
    paths = done.stdout.replace("\\\n", " ").split(":", 1)[1].split()
    return [os.path.join(entry["directory"], path) for path in paths]


def fingerprint(entry, common):
    digest = hashlib.sha256(common + entry["command"].encode())
    for path in own_files(entry):
        with open(path, "rb") as file:
            digest.update(path.encode() + b"\0" + file.read())
    return digest.hexdigest()


def check(entry, build, common, clean):
    """(fingerprint, what clang-tidy said), the latter None when the file is clean."""
    mark = fingerprint(entry, common)
    if mark in clean:
        return mark, None
    done = subprocess.run(["clang-tidy", "--quiet", "-p", build, entry["file"]], capture_output=True, text=True, check=False)
    return mark, None if done.returncode == 0 else done.stdout + done.stderr


def main(build):
    with open(os.path.join(build, "compile_commands.json")) as file:
        entries = [entry for entry in json.load(file) if "/build/" not in entry["file"]]
    clean = set()
    if os.path.exists(CACHE):
        with open(CACHE) as file:
            clean = set(file.read().split())
    version = subprocess.run(["clang-tidy", "--version"], capture_output=True, check=True).stdout
    with open(os.path.join(REPO, ".clang-tidy"), "rb") as file:
        common = version + file.read()
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(lambda entry: check(entry, build, common, clean), entries))
    problems = [said for _, said in results if said is not None]
    os.makedirs(os.path.dirname(CACHE), exist_ok=True)
    with open(CACHE, "w") as file:
        file.write("\n".join(mark for mark, said in results if said is None))
    print("\n".join(problems) if problems else f"{len(entries)} files are clean")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
