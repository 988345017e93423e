#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Measures inside the component cluster that tests/bench/component made. See there."""

import argparse
import http.client
import json
import os
import random
import ssl
import statistics
import subprocess
import time
import urllib.parse

CLOCK_TICK = os.sysconf("SC_CLK_TCK")


class Api:
    """One connection to the API server, kept open."""

    def __init__(self, url, ca):
        where = urllib.parse.urlsplit(url)
        self.connection = http.client.HTTPSConnection(
            where.hostname, where.port, context=ssl.create_default_context(cafile=ca), timeout=30
        )

    def call(self, method, path, body):
        self.connection.request(
            method,
            path,
            json.dumps(body),
            {
                "Authorization": "Bearer admin-token",
                "Content-Type": "application/merge-patch+json"
                if method == "PATCH"
                else "application/json",
            },
        )
        answer = self.connection.getresponse()
        text = answer.read()
        if answer.status >= 300:
            raise SystemExit(f"{method} {path}: {answer.status} {text[:500]!r}")


class Poll:
    """slurm_poll.c: when did a node turn."""

    def __init__(self, program):
        self.process = subprocess.Popen(
            [program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def ask(self, node, wanted):
        self.process.stdin.write(f"{node} {wanted}\n")

    def answer(self):
        return int(self.process.stdout.readline()) / 1000

    def wait(self, node, wanted):
        self.ask(node, wanted)
        return self.answer()


def now_ms():
    return time.time() * 1000


def spread(values):
    values = sorted(values)
    at = lambda share: values[min(len(values) - 1, int(share * len(values)))]
    return {
        "n": len(values),
        "p50": round(statistics.median(values), 1),
        "p99": round(at(0.99), 1),
        "max": round(values[-1], 1),
    }


def make_fleet(api, count):
    """Nodes that are only looked at: a Node object and a Slurm record each, without slurmd."""
    if not count:
        return
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": now}
    for i in range(1, count + 1):
        node = {
            "metadata": {"name": f"f{i}", "labels": {"tidegate.dev/pool": "hpc"}},
            "status": {"conditions": [ready]},
        }
        api.call("POST", "/api/v1/nodes", node)
    subprocess.run(
        ["scontrol", "create", f"nodename=f[1-{count}]", "cpus=2", "realmemory=2000",
         "feature=hpc", "state=cloud"],
        check=True,
    )  # fmt: skip


def cordons(api, poll, nodes, count):
    """From the start of the API call to the state that slurmctld shows."""
    whole, call = [], []
    for i in range(count):
        node = nodes[i % len(nodes)]
        poll.wait(node, "free")
        time.sleep(random.uniform(0, 0.3))  # events come at any moment of the bridge's rounds
        poll.ask(node, "drain")
        begin = now_ms()
        api.call("PATCH", f"/api/v1/nodes/{node}", {"spec": {"unschedulable": True}})
        call.append(now_ms() - begin)
        whole.append(poll.answer() - begin)
        api.call("PATCH", f"/api/v1/nodes/{node}", {"spec": {"unschedulable": False}})
    for node in nodes:
        poll.wait(node, "free")
    return spread(whole), spread(call)


def by_hand(poll, nodes, count):
    """What a script would do: one scontrol a node, with nobody who would have to notice first."""
    whole = []
    for i in range(count):
        node = nodes[i % len(nodes)]
        update = ["scontrol", "update", f"nodename={node}"]
        poll.ask(node, "drain")
        begin = now_ms()
        subprocess.run([*update, "state=drain", "reason=bench"], check=True)
        whole.append(poll.answer() - begin)
        subprocess.run([*update, "state=resume"], check=True)
        poll.wait(node, "free")
    return spread(whole)


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / CLOCK_TICK


def memory_mib(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        kib = [int(line.split()[1]) for line in f if line.startswith("VmRSS:")]
    return round(kib[0] / 1024, 1)


def idle(pids, seconds):
    before = [cpu_seconds(p) for p in pids]
    time.sleep(seconds)
    return [
        {
            "rss_mib": memory_mib(p),
            "cpu_percent": round((cpu_seconds(p) - b) / seconds * 100, 2),
        }
        for p, b in zip(pids, before)
    ]


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--api", required=True)
    arguments.add_argument("--ca", required=True)
    arguments.add_argument("--poll", required=True)
    arguments.add_argument("--nodes", required=True)
    arguments.add_argument("--fleet", type=int, required=True)
    arguments.add_argument("--cordons", type=int, required=True)
    arguments.add_argument("--idle", type=int, required=True)
    arguments.add_argument("--pids", required=True)
    arguments.add_argument("--out", required=True)
    a = arguments.parse_args()
    api, poll = Api(a.api, a.ca), Poll(a.poll)
    nodes = a.nodes.split(",")

    make_fleet(api, a.fleet)
    time.sleep(5)
    whole, call = cordons(api, poll, nodes, a.cordons)
    hand = by_hand(poll, nodes, a.cordons)
    leader, standby = idle([int(p) for p in a.pids.split(",")], a.idle)
    result = {
        "nodes": len(nodes) + a.fleet,
        "cordon_to_drain_ms": whole,
        "of_which_api_call_ms": call,
        "baseline_scontrol_per_node_ms": hand,
        "leader_idle": leader,
        "standby_idle": standby,
    }
    with open(a.out, "w", encoding="ascii") as f:
        json.dump(result, f, indent=2)
        f.write("\n")

    print(f"component cluster, {result['nodes']} nodes, ms      n     p50     p99     max")
    for name, row in (
        ("cordon at the API to DRAIN in Slurm", whole),
        ("  of which the API server's own answer", call),
        ("baseline: one `scontrol update` a node", hand),
    ):
        print(f"{name:40} {row['n']:6} {row['p50']:7} {row['p99']:7} {row['max']:7}")
    for name, row in (("bridge idle, leader", leader), ("bridge idle, standby", standby)):
        print(f"{name:40} {row['rss_mib']} MiB, {row['cpu_percent']} % of a core")


if __name__ == "__main__":
    main()
