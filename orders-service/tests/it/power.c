/*
 * A disk that keeps what was synced and nothing else, for a process that is about to lose its power.
 *
 * Loaded before the C library (LD_PRELOAD). Whenever a file of the database has been synced, what it holds at that
 * moment is copied beside it, under the same name with ".synced". After a kill those copies are the disk: what was
 * written and not synced is in none of them.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>
#include <fcntl.h>

static int ends_with(const char *text, const char *end) {
    size_t length = strlen(text), tail = strlen(end);
    return length >= tail && strcmp(text + length - tail, end) == 0;
}

/* A copy that could not be made must not pass for a disk that kept nothing. */
static void give_up(const char *what) {
    perror(what);
    abort();
}

static void keep(int file) {
    char link[64], path[3800], kept[4096], made[4096], piece[65536];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) give_up("readlink");
    path[length] = 0;
    if (!ends_with(path, ".db") && !ends_with(path, ".db-wal")) return;
    snprintf(kept, sizeof kept, "%s.synced", path);
    snprintf(made, sizeof made, "%s.making", path);
    int copy = open(made, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (copy < 0) give_up("open");
    for (off_t place = 0;;) {
        ssize_t got = pread(file, piece, sizeof piece, place);
        if (got < 0) give_up("pread");
        if (got == 0) break;
        if (write(copy, piece, got) != got) give_up("write");
        place += got;
    }
    close(copy);
    if (rename(made, kept) != 0) give_up("rename");
}

static int synced(const char *name, int file) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    if (real == NULL) give_up("dlsym");
    int answer = real(file);
    if (answer == 0) keep(file);
    return answer;
}

int fsync(int file) { return synced("fsync", file); }

int fdatasync(int file) { return synced("fdatasync", file); }
