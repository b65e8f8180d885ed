/* What a machine that dies leaves of a store's file: LD_PRELOAD notes in the file SYNCED_FILE how long it was when it was last synced. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static volatile int64_t *synced;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("SYNCED_FILE");
    int file = path ? open(path, O_RDWR) : -1;
    void *found = file < 0 ? MAP_FAILED : mmap(NULL, sizeof *synced, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    synced = found == MAP_FAILED ? NULL : found;
}

static int sync_one(long number, int file) {
    char place[64], path[PATH_MAX + 1];
    struct stat before;
    fstat(file, &before); /* what is written meanwhile may or may not be synced */
    int status = syscall(number, file);
    snprintf(place, sizeof place, "/proc/self/fd/%d", file);
    ssize_t size = readlink(place, path, PATH_MAX);
    if (!status && synced && size > 9 && !memcmp(path + size - 9, ".incr.aof", 9)) *synced = before.st_size;
    return status;
}

int fdatasync(int file) { return sync_one(SYS_fdatasync, file); }

int fsync(int file) { return sync_one(SYS_fsync, file); }
