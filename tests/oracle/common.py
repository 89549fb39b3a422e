"""Functions for the checks: run memtrack under limits, read the reference data, report differences. Standard library only."""
import atexit
import gzip
import hashlib
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data")


def arguments(doc, real=False):
    """Returns the command's path and the data folders; with `real` also the folder named by --real, or None."""
    argv, real_folder = sys.argv[1:], None
    if real and "--real" in argv[:-1]:
        at = argv.index("--real")
        real_folder = os.path.abspath(argv[at + 1])
        del argv[at:at + 2]
    if not argv or argv[0] in ("-h", "--help"):
        print(doc.strip() + f"\n\nusage: python3 CHECK.py path/to/memtrack {'[--real FOLDER] ' if real else ''}[data folder ...]")
        sys.exit(2)
    memtrack, roots = os.path.abspath(argv[0]), [os.path.abspath(p) for p in argv[1:]] or [DATA]
    return (memtrack, roots, real_folder) if real else (memtrack, roots)


def run(command, timeout=60, limit_mib=None, cwd=None):
    """Returns the exit code (None after a timeout), stdout, stderr and the seconds taken."""
    def limits():
        if limit_mib:
            resource.setrlimit(resource.RLIMIT_AS, (limit_mib << 20, limit_mib << 20))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    start = time.time()
    p = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, preexec_fn=limits, cwd=cwd)
    try:
        out, err = p.communicate(timeout=timeout)
        code = p.returncode
    except subprocess.TimeoutExpired:
        p.kill()
        out, err = p.communicate()
        code = None
    return code, out, err, time.time() - start


def crashed(code, err):
    return code is None or code < 0 or code in (101, 134, 139) or b"panicked at" in err


def read(path):
    """Returns the bytes of a file, or those of PATH.gz, decompressed."""
    if os.path.exists(path):
        with open(path, "rb") as file:
            return file.read()
    with gzip.open(path + ".gz", "rb") as file:
        return file.read()


def unpacked_folder():
    """Returns the folder for decompressed copies, which is removed at the end."""
    if not hasattr(unpacked_folder, "path"):
        unpacked_folder.path = tempfile.mkdtemp(prefix="memtrack-oracle-")
        atexit.register(shutil.rmtree, unpacked_folder.path, ignore_errors=True)
    return unpacked_folder.path


def plain(path):
    """Returns the path of a file, or of a decompressed copy of PATH.gz."""
    if os.path.exists(path):
        return path
    copy = os.path.join(unpacked_folder(), hashlib.sha1(path.encode()).hexdigest()[:12] + "-" + os.path.basename(path))
    if not os.path.exists(copy):
        with open(copy, "wb") as file:
            file.write(read(path))
    return copy


def finish(lines, summary, ok, limit=25):
    """Prints the differences and the summary, and exits with 0 or 1."""
    for line in lines[:limit]:
        print(line)
    if len(lines) > limit:
        print(f"(+{len(lines) - limit} more)")
    print(summary)
    sys.exit(0 if ok else 1)
