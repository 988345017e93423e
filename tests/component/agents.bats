# SPDX-License-Identifier: GPL-2.0-or-later
# What attackers of the agents' links meet: real frames and credentials of a real munged, against the
# bridge's side of the protocol (bridge/tests/peers/agents_server).

setup_file() {
    load lib
    local i
    for i in 1 2 3; do ip address add "10.99.1.$i/32" dev lo; done
    ip route add local 10.100.0.0/16 dev lo # whole networks that attackers come from
    ip route add local 10.101.0.0/16 dev lo
    munge_up munged /run/munge/munge.socket.2
    # 250 of the attackers' addresses are of compute pods: users' processes run there.
    {
        printf '10.99.1.%d w%d uid-%d\n' 1 1 1 2 2 2
        for i in {1..250}; do printf '10.100.0.%d x%d y%d\n' "$i" "$i" "$i"; done
    } >"$RUN/pods"
    server_up
}
setup() {
    load lib
    bats_require_minimum_version 1.5.0
}

# munge_up NAME SOCKET: a munged with a fresh key.
munge_up() {
    mkdir -p "$(dirname "$2")"
    (umask 077 && head -c 128 /dev/urandom >"$RUN/$1.key")
    munge_start "$1" "$2"
}
munge_start() {
    spawn "$1" munged -F --key-file "$RUN/$1.key" --seed-file "$RUN/$1.seed" --socket "$2" \
        --pid-file "$RUN/$1.munge-pid" --log-file "$LOGS/$1.munged"
    eventually 10 munge -n --socket "$2" -o /dev/null
}

server_up() {
    [[ -x $TIDEGATE_BUILD/peers/agents_server ]] ||
        { echo "there is no $TIDEGATE_BUILD/peers/agents_server: run 'make programs' first"; return 1; }
    spawn server "${AS_SLURM[@]}" "$TIDEGATE_BUILD/peers/agents_server" 0.0.0.0:6821 1000 "$RUN/pods"
    eventually 10 port_open 6821
}
attack() { timeout 60 tests/component/attack.py "$@"; }

heard() { grep '^{' "$LOGS/server.log" | tail -n 1; }
said() { heard | jq -e "$1"; }
# link_is NODE yes|no
link_is() { said ".nodes.$1.linked == \"$2\""; }
count() { heard | jq ".$1"; }

# honest: an agent is linked within 2 s and stays so.
honest() {
    local log=$BATS_TEST_TMPDIR/honest
    attack "$@" agent 2 >"$log" 2>&1 || { cat "$log"; return 1; }
    grep -E '^linked after ([0-9]{1,3}|1[0-9]{3}) ms$' "$log"
}

@test "an agent is linked, and lost when it goes" {
    attack agent 3 &
    eventually 3 link_is w1 yes
    wait $!
    eventually 3 link_is w1 no
}

@test "a replayed greeting is refused, and the link that it was taken from stands" {
    attack replayed-greeting
}

@test "a replayed frame ends its link" {
    before=$(count bad_frames)
    attack replayed-frame
    eventually 3 said ".bad_frames == $((before + 1))"
}

@test "a frame without MAC, under a wrong key, or with a bit turned over ends its link" {
    attack no-mac
    attack wrong-mac
}

@test "a frame of the bridge that is sent back to it ends the link" {
    attack reflected
}

@test "a frame before the greeting is refused" {
    attack before-the-greeting
}

@test "a user's credential is refused: it names who made it" {
    attack --uid 1000 refused 'made by uid 1000'
}

@test "an address that is no compute pod's is not even challenged" {
    before=$(count closed_at_once)
    attack --source 10.99.1.3 closed
    attack --source 10.99.0.1 closed
    eventually 3 said ".closed_at_once == $((before + 2))"
}

@test "an agent at the address of another pod is refused" {
    attack --source 10.99.1.2 refused 'says to be on node w1, the pod with the address 10.99.1.2 is on w2'
}

@test "a name of another node, or another pod's uid, is refused" {
    attack --node w2 refused 'says to be on node w2'
    attack --node w2 --pod uid-2 refused 'says to be on node w2'
    attack --pod uid-2 refused 'says to be pod uid-2'
    attack --node $'w1\e[31m' refused 'printable ASCII'
    said '.nodes.w2 == null'
}

@test "a credential for another reader is refused" {
    attack --reader alice refused 'another reader'
}

@test "an announced size is refused from the header alone" {
    attack oversized
}

@test "bytes of another protocol are refused" {
    attack garbage
}

@test "a slow writer is ended 5 s after it came" {
    attack slow
}

@test "a key from before the rotation is refused; links that stand go on" {
    munge_up old /run/munge-old/socket
    cp -p "$RUN/old.key" "$RUN/munged.key"
    stop munged
    munge_start munged /run/munge/munge.socket.2
    attack agent 8 >"$BATS_TEST_TMPDIR/agent" 2>&1 &
    agent=$!
    eventually 3 link_is w1 yes
    attack --source 10.99.1.2 --node w2 --pod uid-2 --munge-socket /run/munge-old/socket agent 1

    stop munged
    munge_up munged /run/munge/munge.socket.2
    attack --source 10.99.1.2 --node w2 --pod uid-2 --munge-socket /run/munge-old/socket \
        refused 'not made with the munge key'
    honest --source 10.99.1.2 --node w2 --pod uid-2
    link_is w1 yes
    wait $agent
}

@test "a munged that hangs keeps no link from going on, and who comes is told" {
    attack agent 12 >"$BATS_TEST_TMPDIR/agent" 2>&1 &
    agent=$!
    eventually 3 link_is w1 yes
    # its credential is made beside the bridge's munged
    munge_up node /run/munge-node/socket
    cp -p "$RUN/munged.key" "$RUN/node.key"
    stop node
    munge_start node /run/munge-node/socket
    signal munged STOP
    attack --source 10.99.1.2 --node w2 --pod uid-2 --munge-socket /run/munge-node/socket \
        refused 'munged did not answer in time'
    link_is w1 yes
    signal munged CONT
    eventually 15 honest --source 10.99.1.2 --node w2 --pod uid-2
    wait $agent
}

rss_kib() { awk '$1 == "VmRSS:" { print $2 }' "/proc/$(pid_of server)/status"; }
descriptors() { find "/proc/$(pid_of server)/fd" -mindepth 1 | wc -l; }

# crowd_of NAME PREFIX PER_ADDRESS COUNT: an attacker's process that goes on.
crowd_of() {
    spawn "$1" tests/component/attack.py crowd "$2" "$3" "$4" 60
    eventually 40 grep -x ready "$LOGS/$1.log"
}

@test "10,000 silent connections neither keep an agent out nor grow the bridge" {
    before=$(rss_kib)
    spawn agent tests/component/attack.py agent 300 # one that is linked already
    eventually 3 link_is w1 yes
    lost=$(count lost)
    crowd_of strangers 10.101 4 5000 # no pods there
    crowd_of users 10.100 20 5000    # from pods that are known, more than are let wait
    for _ in 1 2 3; do
        honest --source 10.99.1.2 --node w2 --pod uid-2
        echo "memory $before KiB, then $(rss_kib); $(descriptors) descriptors"
        (($(rss_kib) < before + 16384)) # 4 MiB; a build with sanitizers keeps what it frees
        (($(descriptors) > 900 && $(descriptors) < 1024 + 50))
    done
    eventually 3 said ".lost == $((lost + 3))" # the three honest ones that left
    link_is w1 yes
    stop users
    stop strangers
    stop agent
    echo "$(count refused) refused, $(count closed_at_once) closed at once"
    (($(count refused) > 4000))
    (($(count closed_at_once) > 4000))
    # and little of it is in the log
    (($(grep -c level= "$LOGS/server.log") < 1000))
}

@test "10,000 half-open connections do not keep an agent out" {
    # What the server answers never arrives: each connection waits in the kernel.
    nft -f - <<'END'
table ip lossy {
    chain out { type filter hook output priority 0; ip daddr 10.100.0.0/16 tcp sport 6821 drop; }
}
END
    spawn halves tests/component/attack.py crowd 10.100 40 10000 30
    eventually 40 grep -x ready "$LOGS/halves.log"
    half=$(ss -Htn state syn-recv | wc -l)
    echo "$half half-open"
    ((half > 100))
    honest
    honest --source 10.99.1.2 --node w2 --pod uid-2
    stop halves
    nft delete table ip lossy
}

@test "a server that ends does so in order" {
    stop server
    run -1 grep -E 'Sanitizer|runtime error:' "$LOGS/server.log"
}
