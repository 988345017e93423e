/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * hwloc's view of a machine as the plain values of core/nodeline.h: this machine's, the one of a tree of files, or the one
 * of an XML file (as lstopo writes it). Only what the line needs is looked at: no caches, distances or memory
 * attributes, and none of hwloc's plugins, which would load OpenCL and X11.
 */
#ifndef TG_IO_TOPOLOGY_H
#define TG_IO_TOPOLOGY_H

#include "core/nodeline.h"

#define TOPOLOGY_XML_MAX                                                                 \
    (8 << 20) /* a machine of 1024 cpus with all its caches has 1.3 MiB */

/* What Slurm is told as a socket; the last two as slurm.conf's SlurmdParameters=numa_node_as_socket and l3cache_as_socket
 * have it, which slurmd itself does not apply to a line that it is given. */
enum topology_socket { SOCKET_PACKAGE, SOCKET_NUMA, SOCKET_L3CACHE };

struct topology_where {
    enum topology_socket socket;
    /*
     * Where /proc, /sys and /dev are: "" for this machine; a device counts when it has a file in /dev, since /sys shows the
     * host's, but a pod may use only those that it was given. NULL with xml: nothing is looked at, and the files'
     * names are those that the driver will most likely give.
     */
    const char *root;
    const char *xml; /* read instead of /sys; NULL: none */
    size_t xml_len;
    const char *cpus; /* "0-3,8": those that may be used; NULL: all that hwloc shows */
    const char *mems; /* the same of NUMA nodes */
};

/*
 * Sets variables of the environment for hwloc: to be called while there is one thread. -EBADMSG: no topology can be read
 * from the XML; -EMSGSIZE: the XML is too long; -EINVAL: cpus or mems is no list, or no cpu is left; -EIO: hwloc failed.
 */
int topology_read(const struct topology_where *w, struct machine *ret, struct err *err)
    _must_use_;

#endif
