/*
 * A disk that keeps what was synced and nothing else, for tests. Loaded before libc (LD_PRELOAD), it answers `fsync` and
 * `fdatasync`: the bytes of a file are copied to $POWER_KEPT/file-INODE, the names in a directory are listed in
 * $POWER_KEPT/folder-INODE as lines of inode, kind and name. What no call asked for is lost with the power.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static void fail(const char *what) {
    perror(what);
    _exit(99);
}

static void keep_names(const char *from, FILE *to) {
    DIR *folder = opendir(from);
    if (folder == NULL) fail(from);
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        char kind = entry->d_type == DT_DIR ? 'd' : 'f';
        if (entry->d_name[0] != '.') fprintf(to, "%lu %c %s\n", (unsigned long)entry->d_ino, kind, entry->d_name);
    }
    closedir(folder);
}

static void keep_bytes(const char *from, FILE *to) {
    char buffer[65536];
    FILE *file = fopen(from, "rb");
    if (file == NULL) fail(from);
    for (size_t bytes; (bytes = fread(buffer, 1, sizeof buffer, file)) > 0;) {
        if (fwrite(buffer, 1, bytes, to) != bytes) fail("fwrite");
    }
    fclose(file);
}

static int keep(int fd) {
    const char *kept = getenv("POWER_KEPT");
    struct stat about;
    char from[64], unfinished[4096], whole[4096];
    if (kept == NULL) fail("POWER_KEPT");
    if (fstat(fd, &about) != 0) return -1;
    const char *kind = S_ISDIR(about.st_mode) ? "folder" : "file";
    snprintf(from, sizeof from, "/proc/self/fd/%d", fd);
    snprintf(unfinished, sizeof unfinished, "%s/unfinished-%d", kept, gettid());
    snprintf(whole, sizeof whole, "%s/%s-%lu", kept, kind, (unsigned long)about.st_ino);
    FILE *to = fopen(unfinished, "wb");
    if (to == NULL) fail(unfinished);
    if (S_ISDIR(about.st_mode)) keep_names(from, to); else keep_bytes(from, to);
    if (fclose(to) != 0 || rename(unfinished, whole) != 0) fail(whole);
    return 0;
}

int fsync(int fd) { return keep(fd); }

int fdatasync(int fd) { return keep(fd); }
