"""The server programs of PostgreSQL releases that Debian does not bring, from Maven Central: initdb and postgres, with their
libraries and extensions; psql and the like are Debian's."""

import atexit
import fcntl
import functools
import glob
import os
import platform
import shutil
import subprocess
import tempfile
import zipfile

from tests.support.process import REPO, ServerError, find_program, unprivileged_user

VERSIONS = {14: "14.24.0", 15: "15.19.0", 16: "16.15.0", 17: "17.11.0", 18: "18.6.0"}
ARTIFACT = "io.zonky.test.postgres:embedded-postgres-binaries-linux-{processor}:{version}"
PROCESSORS = {"x86_64": "amd64", "aarch64": "arm64v8"}
COPY_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"


def fetch_jar(release):
    """The jar with the programs, fetched from Maven Central once. PGCOURIER_CACHE moves the cache."""
    version = VERSIONS[release]
    cache = os.environ.get("PGCOURIER_CACHE", os.path.join(REPO, ".cache"))
    folder = os.path.join(cache, f"postgres-{version}")
    os.makedirs(cache, exist_ok=True)
    with open(os.path.join(cache, "postgres.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.isdir(folder):
            _download(version, folder)
    (jar,) = glob.glob(os.path.join(folder, "*.jar"))
    return jar


def _download(version, folder):
    partial = folder + ".partial"
    artifact = ARTIFACT.format(processor=PROCESSORS[platform.machine()], version=version)
    command = [find_program("mvn"), "-B", "-q", COPY_GOAL, f"-Dartifact={artifact}", f"-DoutputDirectory={partial}"]
    print(f"fetching PostgreSQL {version} from Maven Central", flush=True)
    done = subprocess.run(command, cwd=os.path.dirname(folder), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ServerError(f"cannot fetch PostgreSQL {version} (is Maven Central reachable?)\n{done.stdout}{done.stderr}")
    os.rename(partial, folder)


@functools.cache
def bin_folder(release):
    """Unpacked anew by each process that asks: the account that the server runs under may not get at the cache."""
    user = unprivileged_user()
    folder = tempfile.mkdtemp(prefix=f"pgcourier-postgres-{release}-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    with zipfile.ZipFile(fetch_jar(release)) as jar:
        (name,) = [name for name in jar.namelist() if name.endswith(".txz")]
        packed = jar.extract(name, folder)
    subprocess.run([find_program("tar"), "-xJf", packed, "-C", folder, "--no-same-owner"], check=True)
    os.unlink(packed)
    os.chmod(folder, 0o755)
    if user:
        shutil.chown(folder, user)
    return os.path.join(folder, "bin")
