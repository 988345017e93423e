// SPDX-License-Identifier: GPL-2.0-or-later
#include "io/listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

union address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

static int parse_listen(const char *text, union address *ret, struct err *err)
{
    const char *colon = strrchr(text, ':');
    char host[INET6_ADDRSTRLEN + 2] = "", *end;
    unsigned long port;

    *ret = (union address){0};
    if (!colon || (size_t)(colon - text) >= sizeof(host) || colon[1] < '0' ||
        colon[1] > '9')
        goto bad;
    port = strtoul(colon + 1, &end, 10);
    if (*end || port > UINT16_MAX)
        goto bad;
    memcpy(host, text, (size_t)(colon - text));
    if (inet_pton(AF_INET, host, &ret->v4.sin_addr) == 1) {
        ret->v4.sin_family = AF_INET;
        ret->v4.sin_port = htons((uint16_t)port);
        return 0;
    }
    end = strchr(host, ']');
    if (host[0] != '[' || !end || end[1])
        goto bad;
    *end = '\0';
    if (inet_pton(AF_INET6, host + 1, &ret->v6.sin6_addr) != 1)
        goto bad;
    ret->v6.sin6_family = AF_INET6;
    ret->v6.sin6_port = htons((uint16_t)port);
    return 0;
bad:
    return err_set(
        err, -EINVAL,
        "cannot listen on '%s': expected ADDRESS:PORT with an address in numbers, such "
        "as 0.0.0.0:8080 or [::]:8080",
        text);
}

int listen_on(const char *text, int backlog, unsigned *ret_port, struct err *err)
{
    union address a;
    socklen_t len = sizeof(a);
    int one = 1, zero = 0, fd, r;

    r = parse_listen(text, &a, err);
    if (r < 0)
        return r;
    fd = socket(a.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return err_set(err, -errno, "cannot listen on %s: %s", text, strerror(errno));
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (a.any.sa_family ==
        AF_INET6) /* [::] is for IPv4 as well, whatever the host's default is */
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof(zero));
    if (bind(fd, &a.any, a.any.sa_family == AF_INET ? sizeof(a.v4) : sizeof(a.v6)) < 0 ||
        listen(fd, backlog) < 0 || getsockname(fd, &a.any, &len) < 0) {
        r = err_set(err, -errno, "cannot listen on %s: %s", text, strerror(errno));
        (void)close(fd);
        return r;
    }
    *ret_port = ntohs(a.any.sa_family == AF_INET ? a.v4.sin_port : a.v6.sin6_port);
    return fd;
}
