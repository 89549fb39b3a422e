/* Leaks on purpose, but only if the first argument is `leaks`. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* `malloc` does not round up the size of a record. */
enum { REQUESTS = 240, RECORD = 70008, PAGES = 16, PAGE = 80000, BATCH = 17, ANSWER = 66000 };

static char *cache[PAGES];
static char *batch[BATCH];
static int in_batch;
static char *history;
static size_t history_room;

__attribute__((noinline)) static char *make_record(int request) {
    char *record = malloc(RECORD); /* the leak */
    memset(record, request, RECORD);
    return record;
}

/* Fills a cache during the first requests, and keeps it. */
static void look_up(int request) {
    char **page = &cache[request % PAGES];
    if (!*page) {
        *page = malloc(PAGE);
        memset(*page, 1, PAGE);
    }
}

/* Grows a block, which moves it each time. */
static void remember(int request) {
    size_t wanted = (size_t)(request + 1) * 4096;
    if (wanted > history_room) {
        history_room = history_room ? 2 * history_room : 131072;
        history = realloc(history, history_room);
    }
    history[wanted - 1] = 1;
}

/* Adds a block to a batch, and empties the batch when it is full. */
static void collect(void) {
    batch[in_batch++] = malloc(ANSWER);
    if (in_batch == BATCH) {
        while (in_batch > 0) {
            free(batch[--in_batch]);
        }
    }
}

int main(int count, char **arguments) {
    int leaks = count > 1 && strcmp(arguments[1], "leaks") == 0;
    for (int request = 0; request < REQUESTS; request++) {
        char *record = make_record(request);
        look_up(request);
        remember(request);
        collect();
        if (!leaks) {
            free(record);
        }
        usleep(3000);
    }
    return 0;
}
