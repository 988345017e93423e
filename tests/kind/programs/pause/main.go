// SPDX-License-Identifier: GPL-2.0-or-later

// The container that keeps a pod's namespaces open. It is PID 1 there, so it must ask for the
// signals that end it, and in a pod with a shared PID namespace it reaps what loses its parent.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for s := range signals {
		if s != syscall.SIGCHLD {
			return
		}
		for {
			// Several children may stand behind one SIGCHLD.
			if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); err != nil || pid <= 0 {
				break
			}
		}
	}
}
