/* Delays fsync and fdatasync, as a slow or busy disk does (LD_PRELOAD). The file SYNC_DELAY names has
   the microseconds, and may change at any time. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void delay(void) {
    const char *path = getenv("SYNC_DELAY");
    FILE *file = path == NULL ? NULL : fopen(path, "r");
    unsigned delay_us = 0;
    if (file == NULL) return;
    if (fscanf(file, "%u", &delay_us) == 1 && delay_us > 0) usleep(delay_us);
    fclose(file);
}

int fsync(int descriptor) {
    static int (*real)(int);
    if (real == NULL) real = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    delay();
    return real(descriptor);
}

int fdatasync(int descriptor) {
    static int (*real)(int);
    if (real == NULL) real = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    delay();
    return real(descriptor);
}
