"""The scenarios of harm.py: the name, what must hold, the program, its arguments."""
from scenario import Scenario

LIBRARIES = {
    "constructor.so": ("constructor.c",),
    "plugin-1.so": ("plugin.c", "-DVERSION=1"),
    "plugin-2.so": ("plugin.c", "-DVERSION=2"),
}

SCENARIOS = [
    # The program and its files.
    Scenario("closed-files", "a file of the program contains only what the program wrote, also when the program has closed "
             "the recorder's file", "daemon", afterwards=("check",)),
    Scenario("failed-stream-closed-stderr", "a program goes on when its stream fails and its stderr is a closed pipe",
             "failed_stream", ("closed-stderr",), 30),
    Scenario("failed-stream-locked-stderr", "a program goes on when its stream fails while another thread has locked stderr",
             "failed_stream", ("locked-stderr",), 30),
    Scenario("loading", "a thread can allocate while the loader's lock is locked", "load", ("{built}/constructor.so",)),
    Scenario("exit-in-handler", "_exit in a signal handler ends a forked child immediately", "exit_in_handler", ("0",), 60),
    Scenario("exit-in-handler-threads", "_exit in a signal handler ends a forked child with threads immediately",
             "exit_in_handler", ("1",), 60),
    Scenario("small-stacks", "threads with stacks of 16 to 64 KiB can allocate", "small_stacks", ("first",), 30),
    Scenario("small-stacks-streaming", "threads with stacks of 16 to 64 KiB can allocate while their events are streamed",
             "small_stacks", ("streaming",), 60),
    Scenario("plugin-reload", "a plugin that was unloaded and replaced is the new one when it is loaded again", "plugin",
             ("{built}/plugin-1.so", "{built}/plugin-2.so")),
    Scenario("out-of-memory", "a program that handles out of memory survives it", "out_of_memory", ("try-reserve",), 60),

    # The numbers.
    Scenario("clock-goes-back", "events before and after a step of the clock are in the recording", "clock", (), 20),
    Scenario("dropped-snapshot", "dropping snapshots leaves the host's numbers as they were", "numbers",
             ("dropped-snapshot",), 30, baseline=False),
    Scenario("freed-in-panic-hook", "blocks that the program's panic hook frees are not live", "numbers", ("panic-hook",),
             baseline=False),
    Scenario("skipped-allocs", "freed blocks are not live, also if alloc events are skipped", "numbers",
             ("skipped-allocs",), 60, baseline=False),
    Scenario("reused-pending-block", "a block whose address is used again while its free is pending is freed once", "numbers",
             ("reused-pending",), baseline=False),
    Scenario("forked-child-elsewhere", "a forked child that changes its folder streams to a file beside its parent's", "forked",
             (), baseline=False),

    # The memory of the recorder.
    Scenario("growth-operators", "memtrack's own bytes stay within 16 MiB over 5 M operators", "growth", ("operators",), 60),
    Scenario("growth-threads", "4,000 threads that have ended leave at most 64 MiB", "growth", ("threads",), 60),

    # The time of the recorder.
    Scenario("cost-scope-paths", "entering a scope costs at most 3 times (if all are new: 5 times) as much after 2 M "
             "distinct paths as after 100,000", "cost", ("scope-paths",), 60, tries=2),
    Scenario("cost-recursion", "a level of a recursive operator costs at most 4 times as much at a depth of 4,000 as at 100",
             "cost", ("recursion",), 60, tries=2),
    Scenario("cost-thread-names", "writing a chunk takes at most 3 times as long after 24,000 threads", "cost", ("thread-names",), 60,
             tries=2),
    Scenario("cost-small-frees", "recording adds at most twice as much to a small block with 32,768 samples live", "cost",
             ("small-frees",), 60, tries=2),
    Scenario("cost-caught-panics", "20 caught panics cost at most 5 times what writing the recording costs", "cost",
             ("caught-panics",), 60, baseline=False, tries=2),
]
