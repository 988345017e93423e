// SPDX-License-Identifier: GPL-2.0-or-later
/* munged's key, user and socket. */
#include "app/tidegate-node_run.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SECRET     "/run/secrets/munge/munge.key"
#define KEY_DIR    "/run/munge-key"
#define KEY        KEY_DIR "/munge.key"
#define KEY_NEW    KEY_DIR "/munge.key.new"
#define KEY_MAX    65536 /* munged itself makes keys of 128 bytes */
#define SOCKET_DIR "/run/munge"
#define SOCKET     SOCKET_DIR "/munge.socket.2"

const char *const munge_argv[] = {"munged",
                                  "--foreground",
                                  "--key-file=" KEY,
                                  "--pid-file=" SOCKET_DIR "/munged.pid",
                                  "--seed-file=" SOCKET_DIR "/munged.seed",
                                  NULL};

/* From the image's own file: no service of users may hang PID 1. */
int munge_find_user(struct munge_user *ret, struct err *err)
{
    FILE *f = fopen("/etc/passwd", "re");
    const struct passwd *p = NULL;
    int r = -ENOENT;

    while (f && r < 0 && (p = fgetpwent(f))) {
        if (strcmp(p->pw_name, "munge") == 0) {
            *ret = (struct munge_user){p->pw_uid, p->pw_gid};
            r = 0;
        }
    }
    if (f)
        (void)fclose(f);
    return r < 0 ? err_set(err, -EINVAL,
                           "/etc/passwd has no user munge, expected the one "
                           "that the package of munged makes")
                 : 0;
}

static int read_key(char *to, size_t *ret_n, struct err *err)
{
    int fd = open(SECRET, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, to, KEY_MAX);
    int error = errno;

    if (fd >= 0)
        (void)close(fd);
    if (n < 0)
        return err_set(err, -error,
                       SECRET
                       " cannot be read: %s; mount the Secret with the munge key there",
                       strerror(error));
    if (n < 32 || n == KEY_MAX)
        return err_set(err, -EINVAL,
                       SECRET " has %zd bytes, expected a munge key of 32 to %d bytes", n,
                       KEY_MAX - 1);
    *ret_n = (size_t)n;
    return 0;
}

static int write_key(const struct munge_user *user, const char *key, size_t n,
                     struct err *err)
{
    int fd, r = 0;

    (void)unlink(KEY_NEW);
    fd = open(KEY_NEW, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0400);
    if (fd < 0 || write(fd, key, n) != (ssize_t)n ||
        fchown(fd, user->uid, user->gid) < 0 || rename(KEY_NEW, KEY) < 0)
        r = err_set(err, -EIO, KEY " cannot be written: %s", strerror(errno));
    if (fd >= 0)
        (void)close(fd);
    return r;
}

static int make_directory(const char *path, const struct munge_user *owner,
                          struct err *err)
{
    if ((mkdir(path, 0755) < 0 && errno != EEXIST) || chmod(path, 0755) < 0 ||
        chown(path, owner->uid, owner->gid) < 0)
        return err_set(err, -errno, "%s cannot be made: %s", path, strerror(errno));
    return 0;
}

int munge_prepare(const struct munge_user *user, struct err *err)
{
    char key[KEY_MAX];
    size_t n = 0;
    int r = read_key(key, &n, err);

    if (r == 0)
        r = make_directory(KEY_DIR, &(struct munge_user){0, 0}, err);
    if (r == 0)
        r = make_directory(SOCKET_DIR, user, err);
    if (r == 0)
        r = write_key(user, key, n, err);
    if (r == 0)
        (void)unlink(SOCKET); /* of a munged that was killed */
    explicit_bzero(key, sizeof(key));
    return r;
}

/* It is made when munged begins to listen; a connect would be a line in munged's log. */
bool munge_answers(void)
{
    return access(SOCKET, F_OK) == 0;
}
