"""Usage: kills.py MEMTRACK [N]

Ends a program N times (1000) by SIGKILL at a random moment, and checks that the recording has every
allocation that had returned by then. The program counts its allocations in a file that it maps; each is larger than what is
sampled. Needs cc. Standard library only."""
import os
import random
import signal
import struct
import subprocess
import sys
import tempfile
import time

SOURCE = r"""
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
static volatile long *counts;
static void *work(void *number) {
    for (;;) {
        char *block = malloc(100000);
        block[0] = 1;
        counts[8 * (long)number]++;
        free(block);
        usleep(20);
    }
    return 0;
}
int main(int argc, char **argv) {
    int file = open(argv[1], O_RDWR | O_CREAT, 0600);
    if (ftruncate(file, 4096)) return 1;
    counts = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    counts[16] = getpid();
    pthread_t other;
    pthread_create(&other, 0, work, (void *)1);
    work(0);
}
"""


def main():
    memtrack = os.path.abspath(sys.argv[1])
    times = int(sys.argv[2]) if len(sys.argv) > 2 else 1000
    lost = repeated = total = 0
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        open("p.c", "w").write(SOURCE)
        subprocess.run(["cc", "-O1", "-fno-builtin", "-pthread", "-o", "p", "p.c"], check=True)
        for number in range(times):
            for name in ("counts", "r"):
                if os.path.exists(name):
                    os.remove(name)
            command = [memtrack, "run", "--host", "-o", "r", "--", "./p", "counts"]
            run = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            pid = 0
            while not pid:
                if run.poll() is not None:
                    sys.exit(f"the program was not started: {run.returncode}")
                time.sleep(0.002)
                if os.path.exists("counts") and os.path.getsize("counts") == 4096:
                    pid = struct.unpack("q", open("counts", "rb").read()[128:136])[0]
            time.sleep(random.random() * 0.05)
            os.kill(pid, signal.SIGKILL)
            run.wait()
            data = open("counts", "rb").read()
            returned = struct.unpack("q", data[:8])[0] + struct.unpack("q", data[64:72])[0]
            answer = subprocess.run([memtrack, "trace", "r"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
            recorded = sum(1 for line in answer.splitlines() if "97.7KiB" in line and " = " in line)
            if recorded < returned:
                lost += 1
                print(f"kill {number}: {recorded} recorded of {returned}", flush=True)
            # Each thread may have been killed between the end of the hook and its count.
            repeated += recorded > returned + 2
            total += returned
    if total == 0:
        sys.exit("no allocation was made before the kills")
    print(f"{times} kills, {lost} with lost allocations, {repeated} with more than there were; {total} allocations")
    sys.exit(lost + repeated != 0)


main()
