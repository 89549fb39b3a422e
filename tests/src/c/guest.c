/* Unusual programs that must run correctly under memtrack, one scenario per run: see tests/tests/cli/run_guests.rs. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

/* Each block is large enough to be recorded individually. */
static void allocate(int times) {
    while (times-- > 0) {
        volatile char *block = malloc(200000);
        *block = 1;
        free((void *)block);
    }
}

/* Returns a stack of this many bytes above guard pages. */
static char *stack_of(size_t bytes) {
    const size_t guard = 65536;
    char *all = mmap(0, bytes + guard, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(all, guard, PROT_NONE);
    return all + guard;
}

/* Waits for a child and returns its status: 0 on success. */
static int status_of(pid_t child) {
    int status = -1;
    waitpid(child, &status, 0);
    return status;
}

static void *exits(void *unused) {
    allocate(1);
    exit(0);
    return unused;
}

static void *forks_a_child_that_exits(void *unused) {
    allocate(1);
    pid_t child = fork();
    if (child == 0) {
        allocate(1);
        _exit(0);
    }
    return (void *)(intptr_t)(status_of(child) + (unused != 0));
}

static void *forks_a_child_that_execs(void *unused) {
    allocate(1);
    pid_t child = fork();
    if (child == 0) {
        allocate(1);
        execl("/bin/true", "true", (char *)0);
        _exit(9);
    }
    return (void *)(intptr_t)(status_of(child) + (unused != 0));
}

static int in_a_small_thread(void *(*work)(void *)) {
    const size_t bytes = 16384;
    pthread_attr_t attributes;
    pthread_t thread;
    void *result = 0;
    pthread_attr_init(&attributes);
    if (pthread_attr_setstack(&attributes, stack_of(bytes), bytes)) return 3;
    if (pthread_create(&thread, &attributes, work, 0)) return 3;
    pthread_join(thread, &result);
    return result != 0;
}

static ucontext_t outside, inside;

static void exits_deep_in_the_stack(void) {
    volatile char used[20000];
    memset((char *)used, 1, sizeof used);
    exits(0);
    used[0]++;
}

static int exits_in_a_coroutine(void) {
    const size_t bytes = 32768;
    getcontext(&inside);
    inside.uc_stack.ss_sp = stack_of(bytes);
    inside.uc_stack.ss_size = bytes;
    inside.uc_link = &outside;
    makecontext(&inside, exits_deep_in_the_stack, 0);
    swapcontext(&outside, &inside);
    return 1;
}

static void exits_in_the_handler(int signal) {
    _exit(signal == SIGTERM ? 0 : 8);
}

static int exits_in_a_signal_handler(void) {
    const size_t bytes = 8192;
    allocate(1);
    pid_t child = fork();
    if (child == 0) {
        stack_t alternate = {.ss_sp = stack_of(bytes), .ss_size = bytes};
        struct sigaction action = {.sa_handler = exits_in_the_handler, .sa_flags = SA_ONSTACK};
        sigaltstack(&alternate, 0);
        sigaction(SIGTERM, &action, 0);
        allocate(3);
        raise(SIGTERM);
        _exit(9);
    }
    return status_of(child) != 0;
}

static volatile int is_over;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* None of these calls is a cancellation point. */
static void *works_under_a_lock(void *unused) {
    while (!is_over) {
        pthread_mutex_lock(&lock);
        allocate(1);
        pthread_mutex_unlock(&lock);
    }
    return unused;
}

static int cancels(void) {
    pthread_t thread;
    void *result = 0;
    pthread_create(&thread, 0, works_under_a_lock, 0);
    usleep(100000);
    pthread_cancel(thread);
    usleep(300000);
    is_over = 1;
    pthread_join(thread, &result);
    return result == PTHREAD_CANCELED || pthread_mutex_trylock(&lock) != 0;
}

/* Closes all files, as daemons do, and opens a data file, which gets the descriptor of stderr. */
static int opens_data_as_stderr(void) {
    for (int number = 0; number < 4096; number++) close(number);
    open("/dev/null", O_RDWR);
    open("/dev/null", O_RDWR);
    if (open("data", O_CREAT | O_TRUNC | O_RDWR, 0644) != 2) return 3;
    int is_written = write(2, "data", 4) == 4;
    /* Enough allocations for memtrack to notice that the file of its stream is closed. */
    allocate(6000);
    sleep(1);
    return write(2, "data", 4) == 4 && is_written ? 0 : 4;
}

extern pid_t _Fork(void);

static int forks_without_fork_handlers(void) {
    int failed = 0;
    for (int number = 0; number < 10; number++) {
        allocate(200);
        pid_t child = _Fork();
        if (child == 0) {
            allocate(20000);
            _exit(0);
        }
        failed += status_of(child) != 0;
    }
    return failed;
}

/* Frees everything that it allocates, and sleeps long enough for memtrack to write to the recording meanwhile. */
static int frees_all(void) {
    for (int times = 0; times < 3000; times++) free(memset(malloc(100), 1, 100));
    sleep(1);
    for (int times = 0; times < 3000; times++) free(memset(malloc(100), 1, 100));
    return 0;
}

int main(int count, char **arguments) {
    const char *way = count > 1 ? arguments[1] : "";
    if (!strcmp(way, "exit")) return in_a_small_thread(exits);
    if (!strcmp(way, "child-exits")) return in_a_small_thread(forks_a_child_that_exits);
    if (!strcmp(way, "child-execs")) return in_a_small_thread(forks_a_child_that_execs);
    if (!strcmp(way, "coroutine")) return exits_in_a_coroutine();
    if (!strcmp(way, "handler")) return exits_in_a_signal_handler();
    if (!strcmp(way, "cancel")) return cancels();
    if (!strcmp(way, "stderr")) return opens_data_as_stderr();
    if (!strcmp(way, "raw-fork")) return forks_without_fork_handlers();
    if (!strcmp(way, "frees-all")) return frees_all();
    if (!strcmp(way, "load")) return dlopen(arguments[2], RTLD_NOW) == 0;
    return 2;
}
