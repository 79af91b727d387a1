/* What a power cut leaves at worst: each file as it was when it was last forced to disk, kept by its name in the folder $DURABLE.
   What was deleted since anything was forced may be there again: it is moved to $DURABLE/deleted until then. */

#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define REAL(type, name) ((type)dlsym(RTLD_NEXT, name))

static void name_of(char *kept, const char *below, const char *path) {
    const char *slash = strrchr(path, '/');
    snprintf(kept, PATH_MAX, "%s/%s%s", getenv("DURABLE"), below, slash ? slash + 1 : path);
}

static void forget_deleted(void) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/deleted", getenv("DURABLE"));
    DIR *folder = opendir(path);
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        name_of(path, "deleted/", entry->d_name);
        if (entry->d_name[0] != '.') REAL(int (*)(const char *), "unlink")(path);
    }
    if (folder) closedir(folder);
}

static void keep(int file) {
    char link[64], path[PATH_MAX], kept[PATH_MAX], part[PATH_MAX], block[1 << 16];
    struct stat about;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0 || fstat(file, &about) || !S_ISREG(about.st_mode)) return;
    path[length] = 0;
    name_of(kept, "", path);
    name_of(part, "deleted/.", path);
    int copy = open(part, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    for (off_t at = 0; (length = pread(file, block, sizeof block, at)) > 0; at += length)
        if (write(copy, block, length) != length) abort();
    close(copy);
    rename(part, kept);
}

#define FORCED(name)                                     \
    int name(int file) {                                 \
        int failed = REAL(int (*)(int), #name)(file);    \
        if (!failed) forget_deleted(), keep(file);       \
        return failed;                                   \
    }
FORCED(fsync)
FORCED(fdatasync)

int unlink(const char *path) {
    char kept[PATH_MAX], gone[PATH_MAX];
    int failed = REAL(int (*)(const char *), "unlink")(path);
    name_of(kept, "", path);
    name_of(gone, "deleted/", path);
    if (!failed) rename(kept, gone);
    return failed;
}
