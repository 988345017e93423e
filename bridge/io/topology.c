// SPDX-License-Identifier: GPL-2.0-or-later
#include "io/topology.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <hwloc.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MIB           (UINT64_C(1) << 20)

#define VENDOR_AMD    0x1002
#define VENDOR_INTEL  0x8086
#define VENDOR_NVIDIA 0x10de

/* PCI classes; of the first only some are for computing */
#define CLASS_VGA         0x0300
#define CLASS_3D          0x0302
#define CLASS_DISPLAY     0x0380
#define CLASS_ACCELERATOR 0x1200

#define RENDER_FIRST      128 /* /dev/dri/renderD128: the kernel counts from here */

/* What is handed from one step to the next. */
struct reading {
    hwloc_topology_t topo;
    hwloc_bitmap_t cpus; /* that may be used; NULL: all */
    hwloc_bitmap_t mems;
    hwloc_obj_t *core_objs; /* of machine.cores, one each */
    const char *root;
    enum topology_socket socket;
};

static void reading_clear(struct reading *r)
{
    if (r->topo)
        hwloc_topology_destroy(r->topo);
    if (r->cpus)
        hwloc_bitmap_free(r->cpus);
    if (r->mems)
        hwloc_bitmap_free(r->mems);
    free(r->core_objs);
}

/* ---- loading --------------------------------------------------------------------------------- */

static void set_environment(const struct topology_where *w)
{
    bool tree = !w->xml && w->root && *w->root;

    (void)setenv("HWLOC_PLUGINS_PATH", "/nonexistent", 1);
    (void)setenv("HWLOC_LIBXML", "0", 1);      /* the same reader whatever is installed */
    (void)setenv("HWLOC_HIDE_ERRORS", "2", 1); /* they would go to stderr */
    if (tree)
        (void)setenv("HWLOC_FSROOT", w->root, 1);
    else
        (void)unsetenv("HWLOC_FSROOT");
}

static int load(const struct topology_where *w, hwloc_topology_t *topo, struct err *err)
{
    /* DONT_CHANGE_BINDING also keeps hwloc from asking each cpu by CPUID, from that very cpu. */
    const unsigned long flags = HWLOC_TOPOLOGY_FLAG_DONT_CHANGE_BINDING |
                                HWLOC_TOPOLOGY_FLAG_NO_DISTANCES |
                                HWLOC_TOPOLOGY_FLAG_NO_MEMATTRS;

    set_environment(w);
    if (hwloc_topology_init(topo) < 0)
        return err_set(err, -EIO, "hwloc cannot be initialised: %m");
    if (hwloc_topology_set_flags(*topo, flags) < 0 ||
        hwloc_topology_set_cache_types_filter(*topo, HWLOC_TYPE_FILTER_KEEP_NONE) < 0 ||
        hwloc_topology_set_icache_types_filter(*topo, HWLOC_TYPE_FILTER_KEEP_NONE) < 0 ||
        hwloc_topology_set_type_filter(*topo, HWLOC_OBJ_L3CACHE,
                                       w->socket == SOCKET_L3CACHE
                                           ? HWLOC_TYPE_FILTER_KEEP_ALL
                                           : HWLOC_TYPE_FILTER_KEEP_NONE) < 0 ||
        hwloc_topology_set_type_filter(*topo, HWLOC_OBJ_PCI_DEVICE,
                                       HWLOC_TYPE_FILTER_KEEP_IMPORTANT) < 0 ||
        /* all: among the important ones there are no renderD* */
        hwloc_topology_set_type_filter(*topo, HWLOC_OBJ_OS_DEVICE,
                                       HWLOC_TYPE_FILTER_KEEP_ALL) < 0)
        return err_set(err, -EIO, "hwloc does not take its settings: %m");
    if (w->xml && hwloc_topology_set_xmlbuffer(*topo, w->xml, (int)w->xml_len + 1) < 0)
        return err_set(err, -EBADMSG,
                       "this is no hwloc XML, expected what lstopo writes with --of xml");
    if (hwloc_topology_load(*topo) < 0)
        return w->xml ? err_set(err, -EBADMSG,
                                "the hwloc XML tells of no machine, or of one that "
                                "contradicts itself")
                      : err_set(err, -EIO, "hwloc cannot read this machine: %m");
    return 0;
}

static int parse_list(const char *what, const char *text, hwloc_bitmap_t *ret,
                      struct err *err)
{
    if (!text)
        return 0;
    *ret = hwloc_bitmap_alloc();
    if (!*ret || hwloc_bitmap_list_sscanf(*ret, text) < 0)
        return err_set(err, -EINVAL, "%s is \"%s\", expected a list such as 0-3,8", what,
                       text);
    return 0;
}

/* ---- cores ----------------------------------------------------------------------------------- */

static uint32_t usable_cpus(const struct reading *r, hwloc_obj_t obj)
{
    hwloc_bitmap_t set;
    int n;

    if (!r->cpus)
        return (uint32_t)hwloc_bitmap_weight(obj->cpuset);
    set = hwloc_bitmap_dup(obj->cpuset);
    hwloc_bitmap_and(set, set, r->cpus);
    n = hwloc_bitmap_weight(set);
    hwloc_bitmap_free(set);
    return (uint32_t)n;
}

static const char *info_of(const struct hwloc_info_s *infos, unsigned n, const char *name)
{
    for (unsigned i = 0; i < n; i++) {
        if (strcmp(infos[i].name, name) == 0)
            return infos[i].value;
    }
    return NULL;
}

/*
 * Intel says what its cores are, and Linux how strong ARM's are. hwloc's kinds alone are no reason: they also
 * tell apart the cores of a plain server that may clock a little higher.
 */
static uint32_t kind_of(const struct reading *r, hwloc_obj_t core)
{
    struct hwloc_info_s *infos = NULL;
    const char *type, *capacity;
    unsigned n = 0;
    int kind = hwloc_cpukinds_get_by_cpuset(r->topo, core->cpuset, 0);

    if (kind < 0 ||
        hwloc_cpukinds_get_info(r->topo, (unsigned)kind, NULL, NULL, &n, &infos, 0) < 0)
        return 0;
    type = info_of(infos, n, "CoreType");
    if (type)
        return strcmp(type, "IntelCore") == 0;
    capacity = info_of(infos, n, "LinuxCapacity");
    return capacity ? (uint32_t)strtoul(capacity, NULL, 10) : 0;
}

/* The package, NUMA node or cache that the core is told to be in; NULL when there is none. */
static hwloc_obj_t socket_of(const struct reading *r, hwloc_obj_t core)
{
    hwloc_obj_t obj = core;

    switch (r->socket) {
    case SOCKET_NUMA:
        while (obj && obj->memory_arity == 0)
            obj = obj->parent;
        return obj;
    case SOCKET_L3CACHE:
        return hwloc_get_ancestor_obj_by_type(r->topo, HWLOC_OBJ_L3CACHE, core);
    case SOCKET_PACKAGE:
        break;
    }
    return hwloc_get_ancestor_obj_by_type(r->topo, HWLOC_OBJ_PACKAGE, core);
}

static int read_cores(struct reading *r, struct machine *m, struct err *err)
{
    /* Some virtual machines tell of cpus only. */
    hwloc_obj_type_t type = hwloc_get_nbobjs_by_type(r->topo, HWLOC_OBJ_CORE) > 0
                                ? HWLOC_OBJ_CORE
                                : HWLOC_OBJ_PU;
    int n = hwloc_get_nbobjs_by_type(r->topo, type);
    hwloc_obj_t socket = NULL, obj;

    if (n <= 0)
        return err_set(err, -EBADMSG, "hwloc finds neither cores nor cpus");
    m->cores = mem_calloc((size_t)n, sizeof(*m->cores));
    r->core_objs = mem_calloc((size_t)n, sizeof(hwloc_obj_t));
    for (unsigned i = 0; i < (unsigned)n; i++) {
        struct machine_core *c = &m->cores[m->n_cores];
        hwloc_obj_t in;

        obj = hwloc_get_obj_by_type(r->topo, type, i);
        c->cpus = usable_cpus(r, obj);
        if (!c->cpus)
            continue;
        in = socket_of(r, obj);
        if (m->n_cores == 0 || in != socket)
            m->sockets++;
        socket = in;
        c->socket = m->sockets - 1;
        c->kind = kind_of(r, obj);
        r->core_objs[m->n_cores++] = obj;
    }
    if (m->n_cores == 0)
        return err_set(err, -EINVAL, "none of the machine's cpus may be used");
    return 0;
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* slurmd compares RealMemory with this: a line with more would be refused. */
static uint64_t memory_seen_by_slurmd(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);

    return pages > 0 && size > 0 ? (uint64_t)pages * (uint64_t)size / MIB : 0;
}

static void read_memory(const struct reading *r, bool this_machine, struct machine *m)
{
    uint64_t bytes = 0, most = this_machine ? memory_seen_by_slurmd() : 0;
    hwloc_obj_t node = NULL;

    while ((node = hwloc_get_next_obj_by_type(r->topo, HWLOC_OBJ_NUMANODE, node))) {
        uint64_t local = node->attr->numanode.local_memory;

        /* GH200 and POWER9 show a GPU's own memory as a node. */
        if (node->subtype && strcmp(node->subtype, "GPUMemory") == 0)
            continue;
        if (r->mems && !hwloc_bitmap_isset(r->mems, node->os_index))
            continue;
        bytes += local;
    }
    m->memory_mib = bytes / MIB;
    if (most && (m->memory_mib > most || m->memory_mib == 0))
        m->memory_mib = most;
}

/* ---- devices --------------------------------------------------------------------------------- */

static bool exists(const struct reading *r, const char *file)
{
    _cleanup_(mem_freep) char *path = r->root ? mem_printf("%s%s", r->root, file) : NULL;

    return !path || access(path, F_OK) == 0;
}

/* The first line of a file that begins with `key` (""; the first of all), without it. NULL: none. */
static char *line_of_file(const char *path, const char *key)
{
    FILE *f = fopen(path, "re");
    char line[256];
    char *found = NULL;

    while (f && !found && fgets(line, sizeof(line), f)) {
        if (strncmp(line, key, strlen(key)) != 0)
            continue;
        found = line + strlen(key);
        found += strspn(found, " \t");
        found[strcspn(found, "\n")] = '\0';
    }
    if (f)
        (void)fclose(f);
    return found ? mem_strdup(found) : NULL;
}

static char *driver_info(const struct reading *r, const struct hwloc_pcidev_attr_s *p,
                         const char *format, const char *key)
{
    _cleanup_(mem_freep) char *bus_id =
        mem_printf("%04x:%02x:%02x.%01x", p->domain, p->bus, p->dev, p->func);
    char path[PATH_MAX];

    if (!r->root)
        return NULL;
    (void)snprintf(path, sizeof(path), "%s%s/%s/%s", r->root,
                   *key ? "/proc/driver/nvidia/gpus" : "/sys/bus/pci/devices", bus_id,
                   format);
    return line_of_file(path, key);
}

/* The number behind `prefix` in the name of one of the device's OS devices; -1: none is called so. */
static int os_number(hwloc_obj_t pci, const char *prefix)
{
    for (hwloc_obj_t o = pci->io_first_child; o; o = o->next_sibling) {
        size_t n = strlen(prefix);

        if (o->type == HWLOC_OBJ_OS_DEVICE && o->name &&
            strncmp(o->name, prefix, n) == 0 && o->name[n] >= '0' && o->name[n] <= '9')
            return (int)strtol(o->name + n, NULL, 10);
    }
    return -1;
}

/*
 * Graphics for a console, and those within an Intel processor (always on bus 0), are none. AMD's for a screen count
 * with a driver for computing: the class is also that of the graphics of old servers' consoles.
 */
static bool is_gpu(const struct reading *r, hwloc_obj_t pci)
{
    const struct hwloc_pcidev_attr_s *p = &pci->attr->pcidev;

    switch (p->vendor_id) {
    case VENDOR_NVIDIA:
        return p->class_id == CLASS_3D || p->class_id == CLASS_VGA;
    case VENDOR_AMD:
        if (p->class_id == CLASS_VGA)
            return os_number(pci, "rsmi") >= 0 ||
                   (os_number(pci, "renderD") >= 0 && exists(r, "/dev/kfd"));
        return p->class_id == CLASS_DISPLAY || p->class_id == CLASS_ACCELERATOR ||
               p->class_id == CLASS_3D;
    case VENDOR_INTEL:
        return p->bus != 0 && (p->class_id == CLASS_DISPLAY || p->class_id == CLASS_VGA);
    default:
        return false;
    }
}

/* `ordinal`: among the devices of the same driver, by bus address, which is how drivers number them. */
static char *file_of(const struct reading *r, hwloc_obj_t pci, int ordinal)
{
    const struct hwloc_pcidev_attr_s *p = &pci->attr->pcidev;
    int n;

    if (p->vendor_id == VENDOR_NVIDIA) {
        _cleanup_(mem_freep) char *minor =
            driver_info(r, p, "information", "Device Minor:");

        n = os_number(pci, "nvml");
        if (minor)
            n = (int)strtol(minor, NULL, 10);
        return mem_printf("/dev/nvidia%d", n < 0 ? ordinal : n);
    }
    n = os_number(pci, "renderD");
    if (n < 0) {
        n = os_number(pci, "rsmi");
        n = RENDER_FIRST + (n < 0 ? ordinal : n);
    }
    return mem_printf("/dev/dri/renderD%d", n);
}

static char *model_of(const struct reading *r, hwloc_obj_t pci)
{
    const struct hwloc_pcidev_attr_s *p = &pci->attr->pcidev;
    _cleanup_(mem_freep) char *product = p->vendor_id == VENDOR_NVIDIA
                                             ? driver_info(r, p, "information", "Model:")
                                             : driver_info(r, p, "product_name", "");
    const char *name = NULL;
    char *model;

    for (hwloc_obj_t o = pci->io_first_child; o && !name; o = o->next_sibling)
        name = hwloc_obj_get_info_by_name(o, "GPUModel");
    if (!name)
        name = product;
    if (!name)
        name = hwloc_obj_get_info_by_name(pci, "PCIDevice");
    model = name ? nodeline_model(name) : NULL;
    return model ? model : mem_printf("%04x-%04x", p->vendor_id, p->device_id);
}

/* The cores next to a device; none when that is all of them. */
static void place(const struct reading *r, hwloc_obj_t pci, const struct machine *m,
                  struct machine_device *d)
{
    hwloc_obj_t near = hwloc_get_non_io_ancestor_obj(r->topo, pci);

    d->cores = mem_calloc(m->n_cores, sizeof(*d->cores));
    for (size_t i = 0; near && near->cpuset && i < m->n_cores; i++) {
        if (hwloc_bitmap_intersects(near->cpuset, r->core_objs[i]->cpuset))
            d->cores[d->n_cores++] = (uint32_t)i;
    }
    if (d->n_cores == m->n_cores)
        d->n_cores = 0;
}

static int by_bus(const void *a, const void *b)
{
    const struct hwloc_pcidev_attr_s *x = &(*(const hwloc_obj_t *)a)->attr->pcidev;
    const struct hwloc_pcidev_attr_s *y = &(*(const hwloc_obj_t *)b)->attr->pcidev;

    if (x->domain != y->domain)
        return x->domain < y->domain ? -1 : 1;
    if (x->bus != y->bus)
        return x->bus < y->bus ? -1 : 1;
    if (x->dev != y->dev)
        return x->dev < y->dev ? -1 : 1;
    return (x->func > y->func) - (x->func < y->func);
}

static int by_file(const void *a, const void *b)
{
    return strverscmp(((const struct machine_device *)a)->file,
                      ((const struct machine_device *)b)->file);
}

static void read_gpus(const struct reading *r, struct machine *m)
{
    _cleanup_(mem_freep) hwloc_obj_t *gpus = NULL;
    hwloc_obj_t pci = NULL;
    size_t n = 0;
    int nvidia = 0, others = 0;

    while ((pci = hwloc_get_next_pcidev(r->topo, pci))) {
        if (!is_gpu(r, pci))
            continue;
        gpus = mem_resize(gpus, n + 1, sizeof(hwloc_obj_t));
        gpus[n++] = pci;
    }
    if (n)
        qsort(gpus, n, sizeof(hwloc_obj_t), by_bus);
    m->devices = mem_calloc(n + 1, sizeof(*m->devices));
    for (size_t i = 0; i < n; i++) {
        struct machine_device *d = &m->devices[m->n_devices];
        bool is_nvidia = gpus[i]->attr->pcidev.vendor_id == VENDOR_NVIDIA;
        char *file = file_of(r, gpus[i], is_nvidia ? nvidia++ : others++);

        if (!exists(r, file)) {
            free(file);
            continue;
        }
        d->gres = mem_strdup("gpu");
        d->file = file;
        d->model = model_of(r, gpus[i]);
        place(r, gpus[i], m, d);
        m->n_devices++;
    }
    if (m->n_devices)
        qsort(m->devices, m->n_devices, sizeof(*m->devices), by_file);
}

/* A pod that was given an adapter has a device for verbs. */
static bool has_verbs(const struct reading *r)
{
    _cleanup_(mem_freep) char *path =
        r->root ? mem_printf("%s/dev/infiniband", r->root) : NULL;
    const struct dirent *e;
    bool found = false;
    DIR *dir;

    if (!path)
        return true;
    dir = opendir(path);
    while (dir && !found && (e = readdir(dir)))
        found = strncmp(e->d_name, "uverbs", 6) == 0;
    if (dir)
        (void)closedir(dir);
    return found;
}

static void read_rdma(const struct reading *r, struct machine *m)
{
    hwloc_obj_t o = NULL;

    while (!m->rdma && (o = hwloc_get_next_osdev(r->topo, o)))
        m->rdma = o->attr->osdev.type == HWLOC_OBJ_OSDEV_OPENFABRICS && has_verbs(r);
}

int topology_read(const struct topology_where *w, struct machine *ret, struct err *err)
{
    _cleanup_(reading_clear) struct reading reading = {.root = w->root,
                                                       .socket = w->socket};
    _cleanup_(machine_clear) struct machine m = {0};
    int r;

    if (w->xml && w->xml_len > TOPOLOGY_XML_MAX)
        return err_set(err, -EMSGSIZE, "the XML has %zu bytes, at most %d are allowed",
                       w->xml_len, TOPOLOGY_XML_MAX);
    r = parse_list("the list of cpus", w->cpus, &reading.cpus, err);
    if (r == 0)
        r = parse_list("the list of NUMA nodes", w->mems, &reading.mems, err);
    if (r == 0)
        r = load(w, &reading.topo, err);
    if (r == 0)
        r = read_cores(&reading, &m, err);
    if (r < 0)
        return r;
    read_memory(&reading, !w->xml && !(w->root && *w->root), &m);
    read_gpus(&reading, &m);
    read_rdma(&reading, &m);
    *ret = m;
    m = (struct machine){0};
    return 0;
}
