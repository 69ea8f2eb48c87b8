/*
 * A clock for redis-server that is off by the seconds in the file $CLOCK_FILE, which may change. It asks for the time
 * with gettimeofday and time, which must agree (replication waits for a difference of both), and for how long something
 * takes with other calls. libfaketime is of no use to it: its allocator asks before that is ready.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long off_by(void) {
    const char *file = getenv("CLOCK_FILE");
    char text[24] = "";
    int opened = file == NULL ? -1 : open(file, O_RDONLY | O_CLOEXEC);
    if (opened < 0) return 0;
    if (read(opened, text, sizeof text - 1) < 0) text[0] = 0;
    close(opened);
    return atol(text);
}

int gettimeofday(struct timeval *restrict shown, void *restrict zone) {
    struct timespec now;
    (void)zone;
    if (syscall(SYS_clock_gettime, CLOCK_REALTIME, &now) != 0) return -1;
    shown->tv_sec = now.tv_sec + off_by();
    shown->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *shown) {
    struct timeval now;
    gettimeofday(&now, NULL);
    if (shown != NULL) *shown = now.tv_sec;
    return now.tv_sec;
}
