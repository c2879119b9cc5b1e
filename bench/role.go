package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
)

// roleVariable is the environment variable that gives this program a role other than the bench: the
// bare event server that the api is compared with, or the client in a sandbox whose network is
// measured.
const roleVariable = "OVERWINTER_BENCH_ROLE"

var roles = map[string]func(args []string) error{
	"events":  serveEvents,
	"network": useNetwork,
}

// playRole does not return if the environment gives this process a role.
func playRole() {
	role, ok := roles[os.Getenv(roleVariable)]
	if !ok {
		return
	}
	if err := role(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// roleCommand runs this program in a role.
func roleCommand(ctx context.Context, role string, args ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, "/proc/self/exe", args...)
	command.Env = append(os.Environ(), roleVariable+"="+role)
	command.Stderr = os.Stderr
	return command
}
