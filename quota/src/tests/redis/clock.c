/*
 * A clock that is off by $CLOCK_OFF_BY seconds, for redis-server: it asks for the time with gettimeofday and time, which
 * must agree (replication waits for a difference of both), and for how long something takes with other calls. libfaketime is
 * of no use to it: its allocator asks before that is ready.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

int gettimeofday(struct timeval *restrict shown, void *restrict zone) {
    struct timespec now;
    const char *off_by = getenv("CLOCK_OFF_BY");
    (void)zone;
    if (syscall(SYS_clock_gettime, CLOCK_REALTIME, &now) != 0) return -1;
    shown->tv_sec = now.tv_sec + (off_by == NULL ? 0 : atol(off_by));
    shown->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *shown) {
    struct timeval now;
    gettimeofday(&now, NULL);
    if (shown != NULL) *shown = now.tv_sec;
    return now.tv_sec;
}
