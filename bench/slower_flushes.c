/* Preloaded by bench/flows.py: each flush of SQLite takes SLOWER microseconds more. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>

int fdatasync(int file)
{
    int (*flush)(int) = (int (*)(int)) dlsym(RTLD_NEXT, "fdatasync");
    struct timespec pause = {.tv_nsec = 1000L * SLOWER};

    nanosleep(&pause, 0);
    return flush(file);
}
